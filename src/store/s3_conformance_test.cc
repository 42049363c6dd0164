#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "s3/config.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/s3_copy.h"
#include "store/s3_store.h"
#include "store/testing/s3_place.h"

/// The contract of ObjectStore over a real S3 server. AWS_ENDPOINT_URL and the other usual variables say which;
/// MILLRACE_TEST_BUCKET names an existing bucket, which is EMPTIED. tests/store/test_rgw.py runs it on Ceph RADOS
/// Gateway.

namespace millrace {
namespace {

std::unique_ptr<StorePlace> MakePlace() {
  absl::StatusOr<S3Config> config = LoadS3Config();
  EXPECT_TRUE(config.ok()) << config.status();
  if (!config.ok()) return nullptr;
  return std::make_unique<S3Place>(*std::move(config), std::getenv("MILLRACE_TEST_BUCKET"));
}

// An object of 11 MiB as if it were one of more than 5 GiB.
TEST(S3Conformance, CopiesByParts) {
  const std::string bucket = std::getenv("MILLRACE_TEST_BUCKET");
  const std::string bytes(11 << 20, 'p');
  Runtime runtime(RuntimeOptions{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 30});
  absl::StatusOr<S3Config> config = LoadS3Config();
  ASSERT_TRUE(config.ok()) << config.status();
  S3Client client(runtime, *std::move(config));
  S3Store store(runtime.loops(), client, bucket);
  const auto put = PutBlocking(store, "parts/from +ü", AsBytes(bytes), {.content_type = "image/x-test"});
  ASSERT_TRUE(put.ok()) << put.status();
  Completion<absl::StatusOr<ObjectInfo>> copied;
  CopyOnS3(client, {.bucket = bucket, .key = put->key, .size = put->size, .etag = put->etag}, bucket, "parts/to", {},
           {.largest_whole = 6 << 20, .part = 5 << 20}, copied.Callback());
  const absl::StatusOr<ObjectInfo> info = copied.Wait();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->etag.substr(info->etag.size() - 2), "-3");
  EXPECT_TRUE(*ReadAll(store, "parts/to", 1 << 30) == bytes);
  Completion<absl::StatusOr<ObjectDescription>> described;
  client.Describe(bucket, "parts/to", described.Callback());
  EXPECT_EQ(described.Wait()->content_type, "image/x-test");
}

INSTANTIATE_TEST_SUITE_P(Server, StoreContract, testing::Values(StoreKind{"s3", MakePlace}), StoreKindName);
INSTANTIATE_TEST_SUITE_P(Server, StoreCopyContract, testing::Values(StoreKind{"s3", MakePlace}), StoreKindName);

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv("MILLRACE_TEST_BUCKET") == nullptr || std::getenv("AWS_ENDPOINT_URL") == nullptr) {
    fmt::print(stderr, "set AWS_ENDPOINT_URL and MILLRACE_TEST_BUCKET, a bucket that may be emptied\n");
    return 2;
  }
  return RUN_ALL_TESTS();
}
