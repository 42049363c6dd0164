#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "s3/config.h"
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

INSTANTIATE_TEST_SUITE_P(Server, StoreContract, testing::Values(StoreKind{"s3", MakePlace}), StoreKindName);

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
