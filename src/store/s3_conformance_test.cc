#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "s3/config.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/s3_copy.h"
#include "store/s3_store.h"
#include "store/testing/s3_place.h"

/// These tests check the contract of ObjectStore over a real S3 server. AWS_ENDPOINT_URL and the other usual variables
/// say which; MILLRACE_TEST_BUCKET names an existing bucket, which is EMPTIED. tests/store/test_rgw.py runs it on Ceph
/// RADOS Gateway.

namespace millrace {
namespace {

std::unique_ptr<StorePlace> MakePlace() {
  absl::StatusOr<S3Config> config = LoadS3Config();
  EXPECT_TRUE(config.ok()) << config.status();
  if (!config.ok()) return nullptr;
  return std::make_unique<S3Place>(*std::move(config), std::getenv("MILLRACE_TEST_BUCKET"));
}

/// Copies an object of 11 MiB, itself uploaded by parts, as if it were one of more than 5 GiB.
class S3Conformance : public ::testing::Test {
 protected:
  static constexpr const char* kFrom = "parts/from +ü";
  static constexpr const char* kTo = "parts/to";

  void SetUp() override {
    absl::StatusOr<S3Config> config = LoadS3Config();
    ASSERT_TRUE(config.ok()) << config.status();
    client_ = std::make_unique<S3Client>(runtime_, *std::move(config));
  }

  void Put(UploadOptions options) {
    Completion<absl::StatusOr<std::string>> created;
    client_->CreateMultipart(bucket_, kFrom, std::move(options), created.Callback());
    const absl::StatusOr<std::string> id = created.Wait();
    ASSERT_TRUE(id.ok()) << id.status();
    Completion<absl::StatusOr<ObjectInfo>> part;
    client_->UploadPart(bucket_, kFrom, *id, 1, AsBytes(bytes_), part.Callback());
    const absl::StatusOr<ObjectInfo> sent = part.Wait();
    ASSERT_TRUE(sent.ok()) << sent.status();
    Completion<absl::StatusOr<ObjectInfo>> completed;
    client_->CompleteMultipart(bucket_, kFrom, *id, {sent->etag}, completed.Callback());
    const absl::StatusOr<ObjectInfo> put = completed.Wait();
    ASSERT_TRUE(put.ok()) << put.status();
    etag_ = put->etag;
  }

  absl::StatusOr<ObjectInfo> Copy() {
    Completion<absl::StatusOr<ObjectInfo>> copied;
    CopyOnS3(*client_, {.bucket = bucket_, .key = kFrom, .size = bytes_.size(), .etag = etag_}, bucket_, kTo, {},
             {.largest_whole = 6 << 20, .part = 5 << 20}, copied.Callback());
    return copied.Wait();
  }

  const std::string bucket_ = std::getenv("MILLRACE_TEST_BUCKET");
  const std::string bytes_ = std::string(11 << 20, 'p');
  Runtime runtime_{RuntimeOptions{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 30}};
  std::unique_ptr<S3Client> client_;
  std::string etag_;
};

TEST_F(S3Conformance, CopiesByParts) {
  Put({.content_type = "image/x-test"});
  const absl::StatusOr<ObjectInfo> info = Copy();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->etag.substr(info->etag.size() - 2), "-3");
  S3Store store(runtime_, *client_, bucket_);
  EXPECT_TRUE(*ReadAll(store, kTo, 1 << 30) == bytes_);
  Completion<absl::StatusOr<ObjectDescription>> described;
  client_->Describe(bucket_, kTo, described.Callback());
  EXPECT_EQ(described.Wait()->content_type, "image/x-test");
}

TEST_F(S3Conformance, KeepsTagsOfWhatIsCopiedByParts) {
  Put({.headers = {{"x-amz-tagging", "team=a%20b&odd=%3D%2B%2F%3A"}}});
  const absl::StatusOr<ObjectInfo> info = Copy();
  ASSERT_TRUE(info.ok()) << info.status();
  for (const char* key : {kFrom, kTo}) {
    Completion<absl::StatusOr<ObjectTags>> tags;
    client_->Tags(bucket_, key, tags.Callback());
    EXPECT_THAT(*tags.Wait(),
                ::testing::UnorderedElementsAre(::testing::Pair("team", "a b"), ::testing::Pair("odd", "=+/:")));
  }
}

INSTANTIATE_TEST_SUITE_P(Server, StoreContract, ::testing::Values(StoreKind{"s3", MakePlace}), StoreKindName);
INSTANTIATE_TEST_SUITE_P(Server, StoreCopyContract, ::testing::Values(StoreKind{"s3", MakePlace}), StoreKindName);

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (std::getenv("MILLRACE_TEST_BUCKET") == nullptr || std::getenv("AWS_ENDPOINT_URL") == nullptr) {
    fmt::print(stderr, "set AWS_ENDPOINT_URL and MILLRACE_TEST_BUCKET, a bucket that may be emptied\n");
    return 2;
  }
  return RUN_ALL_TESTS();
}
