#include "dataset/objects_ahead.h"

#include <algorithm>
#include <utility>

#include "shard/token_format.h"
#include "store/learn.h"

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
    Coming& coming = coming_.emplace_back();
    coming.object.info = {.key = data_.Key(next->key), .size = next->size, .etag = next->etag};
    coming.object.indexed = *std::move(next);
    if (reuse_ != nullptr) {
      ASSIGN_OR_RETURN(coming.object.reused, reuse_->Find(listing_.kind(), coming.object.indexed));
      if (coming.object.reused) continue;
    }
    Learn(&coming);
  }
  return absl::OkStatus();
}

void ObjectsAhead::Learn(Coming* coming) {
  if (coming->object.info.size <= piece_bytes_) return;
  coming->learnt.emplace();
  LearnObject(*data_.store, coming->object.info, coming->learnt->Callback());
}

// Of a pair of token files, which the .bin comes first of, both are as they were or both are read. The .idx comes next
// but for odd names (x.bin, x.1.bin, x.idx): where it is not in sight, the pair is read, too.
void ObjectsAhead::SettlePair(Coming* coming) {
  std::optional<uint32_t>& reused = coming->object.reused;
  const std::string& key = coming->object.indexed.key;
  if (!reused) return;
  if (IsMegatronIdx(key)) {
    if (reused_idx_.erase(key) == 0) reused.reset();
    return;
  }
  const std::string idx = IdxOfBin(key);
  const bool both = std::any_of(coming_.begin(), coming_.end(), [&idx](const Coming& other) {
    return other.object.reused && other.object.indexed.key == idx;
  });
  if (both) {
    reused_idx_.insert(idx);
  } else {
    reused.reset();
    Learn(coming);
  }
}

absl::StatusOr<std::optional<ObjectsAhead::Object>> ObjectsAhead::Next() {
  RETURN_IF_ERROR(LookAhead());
  if (coming_.empty()) return std::nullopt;
  Coming coming = std::move(coming_.front());
  coming_.pop_front();
  if (kind() == DataKind::kTokens && reuse_ != nullptr && !reuse_->tokens_type()) SettlePair(&coming);
  if (coming.learnt) {
    if (!coming.learnt->WaitOrStop(stop_)) return absl::CancelledError("reading was interrupted");
    ASSIGN_OR_RETURN(coming.object.info, coming.learnt->Wait());
  }
  return std::move(coming.object);
}

}  // namespace millrace
