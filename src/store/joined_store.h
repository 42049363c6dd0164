#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/store_around.h"

namespace millrace {

/// Also reads joined objects (joined_objects.h): a range of them by a GET of each object that it touches. All else, and
/// every other key, goes to the store below.
class JoinedStore final : public StoreAround {
 public:
  /// The store below must outlive it. Its destructor does not wait: reads in flight continue in the store below. Joined
  /// objects whose keys do not all begin with `prefix` are refused: InvalidArgument.
  explicit JoinedStore(ObjectStore& below, std::string prefix = {}) : StoreAround(below), prefix_(std::move(prefix)) {}

  /// Joined objects together are never `whole`. Each one that is read from its first byte to its last is `whole` by
  /// itself. If the caller gives no checksums, such an object is checked against the checksum that the store keeps,
  /// even if the others are not read.
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  /// Asks for all objects of joined ones. Returns FailedPrecondition if a size is not the one in the key.
  void Head(std::string key, HeadOptions options, HeadCallback done) override;

 private:
  absl::StatusOr<std::vector<ObjectInfo>> Split(std::string_view key, std::string_view etag) const;

  const std::string prefix_;
};

}  // namespace millrace
