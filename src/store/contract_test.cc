#include "store/testing/contract.h"

#include <atomic>

#include "devstore/devstore.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "store/testing/counting_store.h"
#include "store/testing/s3_place.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

class MemoryPlace final : public StorePlace {
 public:
  std::unique_ptr<ObjectStore> Open() override { return std::make_unique<MemoryStore>("test"); }
  std::unique_ptr<ObjectStore> OpenMissing() override { return nullptr; }
};

class FilePlace final : public StorePlace {
 public:
  std::unique_ptr<ObjectStore> Open() override { return std::make_unique<FileStore>(folder_.path()); }
  std::unique_ptr<ObjectStore> OpenMissing() override { return std::make_unique<FileStore>(folder_ / "missing"); }
  bool is_folder() const override { return true; }

 private:
  TempFolder folder_;
};

/// Is a bucket of a devstore in this process.
class DevstorePlace final : public StorePlace {
 public:
  static std::unique_ptr<StorePlace> Make(const std::string& root) {
    DevstoreOptions options;
    options.root = root;
    options.buckets = {kBucket};
    absl::StatusOr<std::unique_ptr<Devstore>> server = Devstore::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    if (!server.ok()) return nullptr;
    S3Config config;
    config.endpoint_url = (*server)->url();
    config.credentials = {options.access_key, options.secret_key, ""};
    return std::make_unique<DevstorePlace>(*std::move(server), std::move(config));
  }

  DevstorePlace(std::unique_ptr<Devstore> server, S3Config config)
      : server_(std::move(server)), bucket_(std::move(config), kBucket) {}

  std::unique_ptr<ObjectStore> Open() override { return bucket_.Open(); }
  std::unique_ptr<ObjectStore> OpenMissing() override { return bucket_.OpenMissing(); }

 private:
  static constexpr const char* kBucket = "bucket";

  std::unique_ptr<Devstore> server_;  // outlives its clients
  S3Place bucket_;
};

/// Is a folder behind a store that counts what is asked.
class WrappedPlace final : public StorePlace {
 public:
  std::unique_ptr<ObjectStore> Open() override {
    return std::make_unique<CountingStore>(std::make_unique<FileStore>(folder_.path()), reads_);
  }
  std::unique_ptr<ObjectStore> OpenMissing() override {
    return std::make_unique<CountingStore>(std::make_unique<FileStore>(folder_ / "missing"), reads_);
  }
  bool is_folder() const override { return true; }

 private:
  TempFolder folder_;
  std::atomic<int> reads_{0};
};

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract,
                         ::testing::Values(StoreKind{"mem", [] { return std::make_unique<MemoryPlace>(); }}),
                         StoreKindName);
INSTANTIATE_TEST_SUITE_P(File, StoreContract,
                         ::testing::Values(StoreKind{"file", [] { return std::make_unique<FilePlace>(); }}),
                         StoreKindName);
INSTANTIATE_TEST_SUITE_P(Wrapped, StoreContract,
                         ::testing::Values(StoreKind{"wrapped", [] { return std::make_unique<WrappedPlace>(); }}),
                         StoreKindName);
INSTANTIATE_TEST_SUITE_P(S3, StoreContract,
                         ::testing::Values(StoreKind{"devstore", [] { return DevstorePlace::Make("mem:"); }}),
                         StoreKindName);
INSTANTIATE_TEST_SUITE_P(S3, StoreCopyContract,
                         ::testing::Values(StoreKind{"devstore", [] { return DevstorePlace::Make("mem:"); }}),
                         StoreKindName);

}  // namespace
}  // namespace millrace
