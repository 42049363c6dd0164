#include "cli/key_stream.h"

#include <fmt/format.h>

#include <utility>

namespace millrace::cli {

absl::Status KeyStream::NextObjects() {
  absl::StatusOr<std::vector<ObjectInfo>> objects = lister_.Next();
  if (may_lack_ && last_.empty() && absl::IsNotFound(objects.status())) objects.emplace();
  RETURN_IF_ERROR(objects.status());
  objects_ = *std::move(objects);
  next_ = 0;
  at_end_ = objects_.empty();
  for (const ObjectInfo& object : objects_) {
    if (object.key <= last_ || !object.key.starts_with(below_)) {
      return absl::DataLossError(fmt::format("{}: the store does not list its keys in order: {} comes after {}",
                                             store_.Uri(below_), object.key, last_));
    }
    last_ = object.key;
  }
  return absl::OkStatus();
}

absl::StatusOr<const ObjectInfo*> KeyStream::Peek() {
  for (;;) {
    while (next_ < objects_.size() && objects_[next_].key.ends_with('/')) ++next_;
    if (next_ < objects_.size()) return &objects_[next_];
    if (at_end_) return nullptr;
    RETURN_IF_ERROR(NextObjects());
  }
}

}  // namespace millrace::cli
