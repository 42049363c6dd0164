#include "store/s3_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "devstore/devstore.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/s3_store.h"
#include "store/testing/contract.h"

namespace millrace {
namespace {

constexpr uint64_t kMiB = 1 << 20;

/// Two buckets of a devstore with faults, and a client that does not try again, unless told to. Copies go by parts of 5
/// MiB above 6.
class S3CopyTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> faults, int attempts = 1) {
    DevstoreOptions options;
    options.buckets = {"from", "to"};
    options.faults = std::move(faults);
    options.access_log = [this](std::string_view line) {
      std::lock_guard lock(mutex_);
      log_.emplace_back(line);
    };
    auto started = Devstore::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    S3Config config;
    config.endpoint_url = server_->url();
    config.credentials = {options.access_key, options.secret_key, ""};
    config.max_attempts = attempts;
    client_ = std::make_unique<S3Client>(runtime_, config);
    from_ = std::make_unique<S3Store>(runtime_, *client_, "from");
    to_ = std::make_unique<S3Store>(runtime_, *client_, "to");
    const auto put = PutBlocking(*from_, "a b+/ü", AsBytes(bytes_), {.content_type = "image/x-test"});
    ASSERT_TRUE(put.ok()) << put.status();
    source_ = {.bucket = "from", .key = "a b+/ü", .size = bytes_.size(), .etag = put->etag};
  }

  absl::StatusOr<ObjectInfo> Copy(CopyOptions options = {}) {
    Completion<absl::StatusOr<ObjectInfo>> copied;
    options.moved = [this](uint64_t bytes) { moved_ += bytes; };
    CopyOnS3(*client_, source_, "to", "k", std::move(options),
             {.largest_whole = 6 * kMiB, .part = 5 * kMiB, .at_once = 2}, copied.Callback());
    return copied.Wait();
  }

  /// Counts the requests of that operation that the server has answered.
  int Count(std::string_view operation) {
    std::lock_guard lock(mutex_);
    int count = 0;
    for (const std::string& line : log_) count += line.find(operation) != std::string::npos;
    return count;
  }
  /// None is left unfinished.
  bool Clean() {
    return Count(" CreateMultipartUpload 200") ==
           Count(" AbortMultipartUpload 204") + Count(" CompleteMultipartUpload 200");
  }

  const std::string bytes_ = RandomText(17 * kMiB + 5);
  std::mutex mutex_;
  std::vector<std::string> log_;
  Runtime runtime_{RuntimeOptions{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 64 << 20}};
  std::unique_ptr<Devstore> server_;
  std::unique_ptr<S3Client> client_;
  std::unique_ptr<S3Store> from_;
  std::unique_ptr<S3Store> to_;
  S3CopySource source_;
  std::atomic<uint64_t> moved_{0};
};

TEST_F(S3CopyTest, ALargeObjectGoesByParts) {
  Start({});
  const auto copied = Copy();
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->size, bytes_.size());
  EXPECT_THAT(copied->etag, ::testing::EndsWith("-4"));
  EXPECT_TRUE(*ReadAll(*to_, "k", 1 << 30) == bytes_);
  EXPECT_EQ(moved_, bytes_.size());
  EXPECT_EQ(Count(" UploadPartCopy 200"), 4);
  EXPECT_EQ(Count(" UploadPart 200"), 0);
  EXPECT_EQ(Count("AbortMultipartUpload"), 0);
  Completion<absl::StatusOr<ObjectDescription>> described;
  client_->Describe("to", "k", described.Callback());
  EXPECT_EQ(described.Wait()->content_type, "image/x-test");
}

TEST_F(S3CopyTest, ASmallOneIsOneRequest) {
  Start({});
  source_.size = 6 * kMiB;  // as if it were
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(Count(" CopyObject 200"), 1);
  EXPECT_EQ(Count("MultipartUpload"), 0);
  EXPECT_EQ(moved_, 6 * kMiB);
}

TEST_F(S3CopyTest, EveryStepMayFailAndLeavesNothing) {
  for (const char* fault : {"GET from/* status=403", "HEAD from/* status=404 after=1", "HEAD from/* new-etag after=1",
                            "POST to/k status=403", "PUT to/k status=403 count=1", "PUT to/k status=403 after=3",
                            "PUT to/k error-in-200", "POST to/k status=403 after=1", "PUT to/k status=501"}) {
    log_.clear();
    std::vector<std::string> faults{fault};
    if (std::string_view(fault).starts_with("GET")) faults.emplace_back("HEAD from/* status=403");  // HEAD asks again
    Start(std::move(faults));
    const auto copied = Copy();
    EXPECT_FALSE(copied.ok()) << fault;
    EXPECT_TRUE(Clean()) << fault;
    EXPECT_EQ(HeadBlocking(*to_, "k").status().code(), absl::StatusCode::kNotFound) << fault;
  }
}

TEST_F(S3CopyTest, WhoMayNotReadTagsCopiesWithoutThem) {
  Start({"GET from/* status=403"});
  const auto copied = Copy();
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(Count(" UploadPartCopy 200"), 4);
}

TEST_F(S3CopyTest, WhatPassesIsTriedAgain) {
  Start({"PUT to/k status=503 count=1", "PUT to/k error-in-200 count=1", "POST to/k error-in-200 after=1 count=1"}, 5);
  const auto copied = Copy();
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_TRUE(*ReadAll(*to_, "k", 1 << 30) == bytes_);
}

TEST_F(S3CopyTest, AnObjectThatChangedIsNotCopied) {
  Start({});
  for (const uint64_t size : {uint64_t{1}, uint64_t{bytes_.size()}}) {
    source_.size = size;
    source_.etag = "another";
    EXPECT_EQ(Copy().status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(Clean());
  }
  EXPECT_EQ(HeadBlocking(*to_, "k").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(S3CopyTest, AStoreThatIgnoresTheConditionIsFoundOut) {
  // The copy of an object of parts has another ETag, and then the source is looked at.
  for (const char* fault : {"HEAD from/* delay-ms=1", "HEAD from/* new-etag", "HEAD from/* status=404"}) {
    Start({fault});
    auto writer = from_->Write("parts", {});
    ASSERT_TRUE((*writer)->Append(AsBytes(bytes_)).ok());
    const auto written = (*writer)->Commit();
    ASSERT_TRUE(written.ok()) << written.status();
    source_ = {.bucket = "from", .key = "parts", .size = 1, .etag = written->etag};
    const auto copied = Copy();
    const auto expected = std::string_view(fault).ends_with("delay-ms=1") ? absl::StatusCode::kOk
                          : std::string_view(fault).ends_with("new-etag") ? absl::StatusCode::kFailedPrecondition
                                                                          : absl::StatusCode::kNotFound;
    EXPECT_EQ(copied.status().code(), expected) << copied.status();
  }
}

TEST_F(S3CopyTest, AStopAborts) {
  Start({"PUT to/k retry-after=20"}, 5);
  std::stop_source stop;
  Completion<absl::StatusOr<ObjectInfo>> copied;
  CopyOnS3(*client_, source_, "to", "k", {.stop = stop.get_token()},
           {.largest_whole = 6 * kMiB, .part = 5 * kMiB, .at_once = 2}, copied.Callback());
  while (Count("UploadPartCopy") == 0) std::this_thread::yield();
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(copied.Wait().status()));
  EXPECT_TRUE(Clean());
}

TEST(CopyPartSize, TenThousandPartsHoldTheLargestObject) {
  const S3CopyParts parts;
  EXPECT_EQ(CopyPartSize(parts.largest_whole + 1, parts), parts.part);
  for (const uint64_t size : {uint64_t{5} << 40, uint64_t{50'000'000'000'000}, (uint64_t{5} << 40) + 1}) {
    const uint64_t part = CopyPartSize(size, parts);
    EXPECT_LE((size + part - 1) / part, 10'000u) << size;
    EXPECT_LE(part, uint64_t{5} << 30) << "of S3";
  }
}

}  // namespace
}  // namespace millrace
