#include "dataset/objects_ahead.h"

#include <algorithm>
#include <utility>

#include "shard/token_format.h"

namespace millrace {

namespace {
constexpr size_t kObjects = 32;
}  // namespace

absl::Status ObjectsAhead::LookAhead() {
  while (!listed_all_ && coming_.size() < kObjects) {
    ASSIGN_OR_RETURN(std::optional<IndexedObject> next, listing_.Next());
    if (!next) {
      listed_all_ = true;
      break;
    }
    Object& coming = coming_.emplace_back(Object{.indexed = *std::move(next), .reused = std::nullopt});
    if (reuse_ != nullptr) {
      ASSIGN_OR_RETURN(coming.reused, reuse_->Find(listing_.kind(), coming.indexed));
    }
  }
  return absl::OkStatus();
}

// Decides whether a pair is reused. The .idx comes next after its .bin, except for odd names (x.bin, x.1.bin, x.idx).
// If it is not among the objects ahead, the pair is read.
void ObjectsAhead::SettlePair(Object* object) {
  const std::string& key = object->indexed.key;
  if (!object->reused) return;
  if (IsMegatronIdx(key)) {
    if (reused_idx_.erase(key) == 0) object->reused.reset();
    return;
  }
  const std::string idx = IdxOfBin(key);
  const bool both = std::any_of(coming_.begin(), coming_.end(),
                                [&idx](const Object& other) { return other.reused && other.indexed.key == idx; });
  if (both) {
    reused_idx_.insert(idx);
  } else {
    object->reused.reset();
  }
}

absl::StatusOr<std::optional<ObjectsAhead::Object>> ObjectsAhead::Next() {
  RETURN_IF_ERROR(LookAhead());
  if (coming_.empty()) return std::nullopt;
  Object object = std::move(coming_.front());
  coming_.pop_front();
  if (kind() == DataKind::kTokens && reuse_ != nullptr && !reuse_->tokens_type()) SettlePair(&object);
  return object;
}

}  // namespace millrace
