#include "store/testing/s3_place.h"

#include <atomic>
#include <latch>
#include <utility>

#include "store/blocking.h"
#include "store/s3_store.h"

namespace millrace {

S3Place::S3Place(S3Config config, std::string bucket)
    : runtime_(RuntimeOptions{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 30}),
      client_(runtime_, std::move(config)),
      bucket_(std::move(bucket)) {}

std::unique_ptr<ObjectStore> S3Place::Open() {
  auto store = std::make_unique<S3Store>(runtime_, client_, bucket_);
  const auto objects = ListAll(*store, "");
  EXPECT_TRUE(objects.ok()) << objects.status();
  if (!objects.ok()) return nullptr;
  std::latch deleted(static_cast<ptrdiff_t>(objects->size()));
  std::atomic<int> failed{0};
  for (const ObjectInfo& object : *objects) {
    store->Delete({object.key}, [&](const std::vector<absl::Status>& statuses) {
      if (!statuses.front().ok()) ++failed;
      deleted.count_down();
    });
  }
  deleted.wait();
  EXPECT_EQ(failed, 0);
  return store;
}

std::unique_ptr<ObjectStore> S3Place::OpenMissing() {
  return std::make_unique<S3Store>(runtime_, client_, bucket_ + "-missing");
}

}  // namespace millrace
