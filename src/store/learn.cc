#include "store/learn.h"

#include <memory>
#include <mutex>
#include <utility>

#include "s3/etag.h"

namespace millrace {

namespace {

// The callbacks of the HEADs share it.
struct Learning {
  std::mutex mutex;
  int missing = 0;
  ObjectInfo object;
  absl::Status status;  // the first error
  HeadCallback done;
};

void Add(Learning& learning, absl::StatusOr<ObjectInfo> now) {
  std::unique_lock lock(learning.mutex);
  ObjectInfo& object = learning.object;
  learning.status.Update(now.status());
  if (now.ok() && now->etag == object.etag && now->size == object.size) {
    if (now->checksum) object.checksum = std::move(now->checksum);
    if (now->part_bytes != 0) object.part_bytes = now->part_bytes;
  }
  if (--learning.missing > 0) return;
  lock.unlock();
  if (!learning.status.ok()) return learning.done(learning.status);
  learning.done(std::move(object));
}

}  // namespace

void LearnObject(ObjectStore& store, ObjectInfo object, HeadCallback done) {
  const bool ask_checksum = !object.checksum;
  const bool ask_parts = object.part_bytes == 0 && IsMultipartETag(object.etag);
  const std::string key = object.key;
  const auto learning = std::make_shared<Learning>();
  learning->missing = (ask_checksum ? 1 : 0) + (ask_parts ? 1 : 0);
  if (learning->missing == 0) return done(std::move(object));
  learning->object = std::move(object);
  learning->done = std::move(done);
  const auto add = [learning](absl::StatusOr<ObjectInfo> now) { Add(*learning, std::move(now)); };
  if (ask_checksum) store.Head(key, {}, add);
  if (ask_parts) store.Head(key, {.parts = true}, add);
}

}  // namespace millrace
