#include "dataset/objects_ahead.h"

#include <chrono>
#include <utility>

#include "store/learn.h"

namespace millrace {

namespace {
constexpr size_t kObjects = 32;
constexpr std::chrono::milliseconds kStopSlice{50};
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
    if (coming.object.info.size <= piece_bytes_) continue;
    coming.learnt.emplace();
    LearnObject(*data_.store, coming.object.info, coming.learnt->Callback());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ObjectsAhead::Object>> ObjectsAhead::Next() {
  RETURN_IF_ERROR(LookAhead());
  if (coming_.empty()) return std::nullopt;
  Coming coming = std::move(coming_.front());
  coming_.pop_front();
  if (coming.learnt) {
    while (!coming.learnt->WaitFor(kStopSlice)) {
      if (stop_.stop_requested()) return absl::CancelledError("reading was interrupted");
    }
    ASSIGN_OR_RETURN(coming.object.info, coming.learnt->Wait());
  }
  return std::move(coming.object);
}

}  // namespace millrace
