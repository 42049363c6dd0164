#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "devstore/devstore.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/s3_store.h"
#include "transfer/copy_object.h"

/// These tests have large objects of an S3 that keeps their parts.

namespace millrace {
namespace {

constexpr uint64_t kMiBytes = 1 << 20;

class CopyS3Test : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> faults = {}) {
    DevstoreOptions options;
    options.buckets = {"bkt"};
    options.faults = std::move(faults);
    auto started = Devstore::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    S3Config config;
    config.endpoint_url = server_->url();
    config.credentials = {options.access_key, options.secret_key, ""};
    client_ = std::make_unique<S3Client>(runtime_, config);
    store_ = std::make_unique<S3Store>(runtime_, *client_, "bkt");
    Rng rng(29);
    for (size_t i = 0; i + 8 <= text_.size(); i += 8) StoreLe(text_.data() + i, rng.Next());
    ASSERT_TRUE(PutBlocking(memory_, "k", AsBytes(text_)).ok());
  }

  absl::StatusOr<ObjectInfo> Copy(ObjectStore& from, const std::string& key, ObjectStore& to, const std::string& copy) {
    ASSIGN_OR_RETURN(const ObjectInfo source, HeadBlocking(from, key));
    ASSIGN_OR_RETURN(const CopiedObject copied, CopyObject(from, source, to, copy));
    return copied.info;
  }

  uint64_t Answers(const std::string& method) {
    uint64_t count = 0;
    for (const auto& [kind, answers] : server_->counters()) count += kind.first == method ? answers : 0;
    return count;
  }

  Runtime runtime_{RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = 64 << 20}};
  std::unique_ptr<Devstore> server_;
  std::unique_ptr<S3Client> client_;
  std::unique_ptr<S3Store> store_;
  MemoryStore memory_{"memory"};
  std::string text_ = std::string(35 * kMiBytes + 5, 'x');
};

TEST_F(CopyS3Test, ThePartsOfAnUploadAreLearnt) {
  Start();
  ASSERT_TRUE(Copy(memory_, "k", *store_, "k").ok());
  auto object = HeadBlocking(*store_, "k");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->part_bytes, 0u);
  object = LearnBlocking(*store_, *object);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->part_bytes, 8 * kMiBytes);
  ASSERT_TRUE(object->checksum);
  EXPECT_EQ(object->checksum->kind, ObjectChecksum::Kind::kCrc32c);
  // From a listing neither is known.
  const auto again = LearnBlocking(*store_, {.key = "k", .size = object->size, .etag = object->etag});
  ASSERT_TRUE(again.ok() && again->checksum) << again.status();
  EXPECT_EQ(again->part_bytes, 8 * kMiBytes);
  // Nothing is known of another version.
  const auto other = LearnBlocking(*store_, {.key = "k", .size = object->size, .etag = "x-5"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->part_bytes, 0u);
  EXPECT_FALSE(other->checksum);
}

TEST_F(CopyS3Test, WhatIsAskedForNothingIsNotAsked) {
  Start();
  ASSERT_TRUE(PutBlocking(*store_, "small", AsBytes("x")).ok());
  const auto object = HeadBlocking(*store_, "small");
  const uint64_t heads = Answers("HEAD");
  EXPECT_TRUE(LearnBlocking(*store_, *object).ok());
  EXPECT_EQ(Answers("HEAD"), heads);
  EXPECT_TRUE(absl::IsNotFound(LearnBlocking(*store_, {.key = "gone", .size = 1, .etag = "x-2"}).status()));
}

TEST_F(CopyS3Test, AStoreThatKnowsNoPartsIsNoError) {
  Start({"HEAD bkt/k status=501 count=1"});
  auto source = Copy(memory_, "k", *store_, "k");
  ASSERT_TRUE(source.ok()) << source.status();
  source->checksum = ObjectChecksum{};  // so that nothing but the parts is asked for
  const auto refused = LearnBlocking(*store_, *source);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->part_bytes, 0u);
  EXPECT_EQ(LearnBlocking(*store_, *source)->part_bytes, 8 * kMiBytes);
}

TEST_F(CopyS3Test, EveryStepOfTheUploadMayFailAndLeavesNothing) {
  for (const char* fault : {"POST bkt/k status=403", "PUT bkt/k status=403 after=2", "POST bkt/k status=403 after=1"}) {
    Start({fault});
    const absl::Status status = Copy(memory_, "k", *store_, "k").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << fault << ": " << status;
    EXPECT_TRUE(absl::IsNotFound(HeadBlocking(*store_, "k").status())) << fault;
    EXPECT_EQ(Answers("DELETE"), fault == std::string("POST bkt/k status=403") ? 0u : 1u) << fault;
  }
}

TEST_F(CopyS3Test, ThereAndBackUnderFaults) {
  Start({"GET bkt/k cut=3000000 p=0.3", "PUT bkt/k reset=head p=0.2", "GET bkt/k flip=1000 count=1 after=2"});
  ASSERT_TRUE(Copy(memory_, "k", *store_, "k").ok());
  const auto back = Copy(*store_, "k", memory_, "back");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*ReadAll(memory_, "back", text_.size()) == text_);
  EXPECT_EQ(back->size, text_.size());
}

}  // namespace
}  // namespace millrace
