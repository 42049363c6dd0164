#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/store_around.h"

namespace millrace {

/// A store that also reads joined objects (joined_objects.h): a range of them by a GET of each object that it touches.
/// All else, and every other key, goes to the store below.
class JoinedStore final : public StoreAround {
 public:
  /// The store below must outlive it. Its destructor does not wait: reads in flight go on with the store below. Joined
  /// objects whose keys do not all begin with `prefix` are refused: InvalidArgument.
  explicit JoinedStore(ObjectStore& below, std::string prefix = {}) : StoreAround(below), prefix_(std::move(prefix)) {}

  /// Of joined objects nothing is `whole`: each one that is read from its first byte to its last is, by itself. Without
  /// checksums of the caller it is checked against the one that the store keeps, even if the others are not read.
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  /// Of joined objects, all of them: FailedPrecondition if a size is not the one in the key.
  void Head(std::string key, HeadOptions options, HeadCallback done) override;

 private:
  absl::StatusOr<std::vector<ObjectInfo>> Split(std::string_view key, std::string_view etag) const;

  const std::string prefix_;
};

}  // namespace millrace
