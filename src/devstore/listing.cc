#include "devstore/listing.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "aws/sigv4.h"
#include "s3/key_order.h"

namespace millrace {

absl::StatusOr<ListingPage> ListKeys(KeyWalk& walk, const ListingQuery& query) {
  ListingPage listing;
  if (query.max_keys == 0) return listing;
  std::string position = std::max(query.from, query.prefix);
  for (size_t count = 0;; ++count) {
    ASSIGN_OR_RETURN(std::optional<std::string> key, walk.FirstFrom(position));
    if (!key || !key->starts_with(query.prefix)) return listing;
    if (count == query.max_keys) {
      listing.truncated = true;
      listing.next = std::move(position);
      return listing;
    }
    const size_t at = query.delimiter.empty() ? std::string::npos : key->find(query.delimiter, query.prefix.size());
    if (at == std::string::npos) {
      position = *key + '\0';
      listing.last = *key;
      listing.keys.push_back(*std::move(key));
      continue;
    }
    key->resize(at + query.delimiter.size());
    listing.last = *key;
    const std::optional<std::string> next = AfterPrefix(*key);
    listing.common_prefixes.push_back(*std::move(key));
    if (!next) return listing;
    position = *next;
  }
}

std::string AfterMarker(std::string_view marker, std::string_view prefix, std::string_view delimiter) {
  const bool is_common_prefix = !delimiter.empty() && marker.starts_with(prefix) && marker.size() > prefix.size() &&
                                marker.find(delimiter, prefix.size()) == marker.size() - delimiter.size();
  if (is_common_prefix) {
    if (const auto after = AfterPrefix(marker)) return *after;
  }
  return std::string(marker) + '\0';
}

std::string EncodeContinuation(std::string_view from) {
  // The digit is the version of the token's form, and keeps it from being empty.
  return absl::WebSafeBase64Escape("1" + std::string(from));
}

std::optional<std::string> DecodeContinuation(std::string_view token) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(ToAbsl(token), &text) || !text.starts_with('1')) return std::nullopt;
  return text.substr(1);
}

std::string UrlEncodeName(std::string_view name) {
  std::string out;
  for (;;) {
    const size_t space = name.find(' ');
    out.append(UriEncode(name.substr(0, space), /*keep_slash=*/true));
    if (space == std::string_view::npos) return out;
    out.push_back('+');
    name.remove_prefix(space + 1);
  }
}

}  // namespace millrace
