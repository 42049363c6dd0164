#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "devstore/storage.h"

/// Makes listings as S3 does, without I/O of its own.

namespace millrace {

struct ListingQuery {
  std::string prefix;
  std::string delimiter;  // empty: none
  std::string from;       // keys not less than this
  size_t max_keys = 1000;
};

struct ListingPage {
  std::vector<std::string> keys;
  std::vector<std::string> common_prefixes;
  std::string last;  // the greatest key or common prefix in it
  bool truncated = false;
  std::string next;  // `from` of the next page
};

absl::StatusOr<ListingPage> ListKeys(KeyWalk& walk, const ListingQuery& query);

/// Returns the key at which a listing after `marker` starts. If the marker is itself a common prefix (as NextMarker may
/// be), all keys with that prefix are skipped.
std::string AfterMarker(std::string_view marker, std::string_view prefix, std::string_view delimiter);

std::string EncodeContinuation(std::string_view from);
/// Returns nullopt if EncodeContinuation does not give such a token.
std::optional<std::string> DecodeContinuation(std::string_view token);

/// encoding-type=url as AWS does it: '/' stays, a space becomes '+'.
std::string UrlEncodeName(std::string_view name);

}  // namespace millrace
