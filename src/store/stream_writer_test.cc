#include "store/stream_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stop_token>
#include <thread>

#include "base/rng.h"
#include "devstore/devstore.h"
#include "s3/checksum.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/s3_store.h"
#include "store/s3_upload.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

constexpr uint64_t kStreamMiB = 1 << 20;
constexpr PieceLimits kS3 = S3Upload::kLimits;

TEST(PartSize, GrowsSoThatTenThousandPartsHoldTerabytes) {
  EXPECT_EQ(PartSize(1, kS3), 8 * kStreamMiB);
  EXPECT_EQ(PartSize(1000, kS3), 8 * kStreamMiB);
  EXPECT_EQ(PartSize(1001, kS3), 16 * kStreamMiB);
  EXPECT_EQ(PartSize(kMaxParts, kS3), 1024 * kStreamMiB);
  uint64_t total = 0;
  for (int number = 1; number <= kMaxParts; ++number) {
    EXPECT_GE(PartSize(number, kS3), 5 * kStreamMiB);  // less is EntityTooSmall, but for the last part
    EXPECT_GE(PartSize(number, kS3), PartSize(std::max(number - 1, 1), kS3));
    total += PartSize(number, kS3);
  }
  EXPECT_GT(total, uint64_t{3'900} << 30);
  EXPECT_EQ(PartSize(1, {}), kStreamMiB / 16);
  EXPECT_EQ(PartSize(100'000, {}), kStreamMiB);
}

TEST(PartSize, MemoryStaysNearAThousandthOfTheObject) {
  uint64_t total = 0;
  for (int number = 1; number <= kMaxParts; ++number) {
    const uint64_t held = PartSize(number, kS3) * (PartsHeld(PartSize(number, kS3)));
    EXPECT_LE(held, std::max<uint64_t>(40 * kStreamMiB, total * 7 / 1000));
    total += PartSize(number, kS3);
  }
}

TEST(PartsHeld, AreAtLeastThreeAndAtMostFive) {
  EXPECT_EQ(PartsHeld(8 * kStreamMiB), 5);
  EXPECT_EQ(PartsHeld(16 * kStreamMiB), 3);
  EXPECT_EQ(PartsHeld(1024 * kStreamMiB), 3);
}

/// Is a bucket of a devstore with a rule that makes some requests fail. Its client does not try again, unless the
/// caller asks for it.
class FailingBucket {
 public:
  explicit FailingBucket(std::vector<std::string> faults, int attempts = 1,
                         ObjectChecksum::Kind checksum = ObjectChecksum::Kind::kCrc32c) {
    DevstoreOptions options;
    options.buckets = {"bkt"};
    options.faults = std::move(faults);
    auto started = Devstore::Start(options);
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    S3Config config;
    config.endpoint_url = server_->url();
    config.credentials = {options.access_key, options.secret_key, ""};
    config.max_attempts = attempts;
    config.upload_checksum = checksum;
    client_ = std::make_unique<S3Client>(runtime_, config);
    store_ = std::make_unique<S3Store>(runtime_, *client_, "bkt");
  }

  ObjectStore& store() { return *store_; }

  /// Counts answers to requests of that method, or only those of a status.
  uint64_t Answers(const std::string& method, int status = 0) {
    uint64_t count = 0;
    for (const auto& [kind, answers] : server_->counters()) {
      if (kind.first == method && (status == 0 || kind.second == status)) count += answers;
    }
    return count;
  }

 private:
  Runtime runtime_{RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = 64 << 20}};
  std::unique_ptr<Devstore> server_;
  std::unique_ptr<S3Client> client_;
  std::unique_ptr<S3Store> store_;
};

absl::Status WriteLarge(ObjectStore& store) {
  const std::string piece(3 << 20, 'x');
  ASSIGN_OR_RETURN(const auto writer, store.Write("k", {}));
  for (int i = 0; i < 10; ++i) RETURN_IF_ERROR(writer->Append(AsBytes(piece)));
  return writer->Commit().status();
}

TEST(StreamWriter, UploadsInPartsAndAbortsNothing) {
  FailingBucket bucket({});
  EXPECT_TRUE(WriteLarge(bucket.store()).ok());
  EXPECT_EQ(HeadBlocking(bucket.store(), "k")->size, uint64_t{30} << 20);
  EXPECT_EQ(bucket.Answers("PUT"), 4u);
  EXPECT_EQ(bucket.Answers("POST"), 2u);
  EXPECT_EQ(bucket.Answers("DELETE"), 0u);
}

TEST(StreamWriter, EveryStepMayFailAndLeavesNothing) {
  struct Case {
    const char* fault;
    uint64_t aborts;
  };
  for (const Case& step : {Case{"POST bkt/k status=403", 0},          // creating the upload
                           Case{"PUT bkt/k status=403 count=1", 1},   // the first part
                           Case{"PUT bkt/k status=403 after=3", 1},   // the last part
                           Case{"POST bkt/k status=403 after=1", 1},  // completing it
                           Case{"POST bkt/k error-in-200 after=1 count=1", 1}}) {
    FailingBucket bucket({step.fault});
    const absl::Status status = WriteLarge(bucket.store());
    EXPECT_FALSE(status.ok()) << step.fault;
    EXPECT_THAT(ToStd(status.message()), ::testing::StartsWith("s3://bkt/k")) << step.fault;
    EXPECT_EQ(HeadBlocking(bucket.store(), "k").status().code(), absl::StatusCode::kNotFound) << step.fault;
    EXPECT_EQ(bucket.Answers("DELETE", 204), step.aborts) << step.fault;
  }
}

// Ends a writer with parts in flight, which was not committed. If the destructor waited for an answer, it would hang
// until the time limit of the test.
void Abandon(ObjectStore& store) {
  const std::string piece(10 << 20, 'x');
  auto writer = store.Write("k", {});
  EXPECT_TRUE(writer.ok() && (*writer)->Append(AsBytes(piece)).ok() && (*writer)->Append(AsBytes(piece)).ok());
  writer->reset();
}

TEST(StreamWriter, AnAbandonedOneDoesNotWaitForPartsThatAreTriedAgain) {
  FailingBucket bucket({"PUT bkt/k retry-after=60"}, 10);
  Abandon(bucket.store());
  EXPECT_EQ(bucket.Answers("DELETE", 204), 1u);
}

TEST(StreamWriter, AnAbandonedOneDoesNotWaitForPartsWithoutAnAnswer) {
  FailingBucket bucket({"PUT bkt/k delay-ms=3600000"}, 10);
  Abandon(bucket.store());
  EXPECT_EQ(bucket.Answers("DELETE", 204), 1u);
}

TEST(StreamWriter, TheAbortHasADeadline) {
  FailingBucket bucket({"PUT bkt/k delay-ms=3600000", "DELETE bkt/k retry-after=60"}, 10);
  Abandon(bucket.store());
}

TEST(StreamWriter, AStopEndsTheCallThatWaits) {
  for (const char* fault : {"PUT bkt/k retry-after=60", "POST bkt/k retry-after=60"}) {
    FailingBucket bucket({fault}, 10);
    std::stop_source stop;
    PutOptions options;
    options.stop = stop.get_token();
    absl::Status status;
    std::thread writing([&] {
      const std::string piece(3 << 20, 'x');
      auto writer = bucket.store().Write("k", options);
      for (int i = 0; i < 30 && status.ok(); ++i) status = (*writer)->Append(AsBytes(piece));
    });
    while (bucket.Answers(std::string(fault, std::string_view(fault).find(' '))) == 0) std::this_thread::yield();
    stop.request_stop();
    writing.join();
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  }
}

TEST(StreamWriter, AStopEndsTheCommitOfASmallObject) {
  FailingBucket bucket({"PUT bkt/k retry-after=60"}, 10);
  std::stop_source stop;
  PutOptions options;
  options.stop = stop.get_token();
  auto writer = bucket.store().Write("k", options);
  ASSERT_TRUE((*writer)->Append(AsBytes("x")).ok());
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled((*writer)->Commit().status()));
}

TEST(StreamWriter, TheStoreKeepsTheChecksumThatIsWished) {
  using Kind = ObjectChecksum::Kind;
  const std::string text(20 << 20, 'x');
  for (const Kind kind : {Kind::kCrc32c, Kind::kCrc64Nvme}) {
    FailingBucket bucket({}, 1, kind);
    for (const size_t size : {size_t{100}, text.size()}) {
      auto writer = bucket.store().Write("k", {});
      ASSERT_TRUE((*writer)->Append(AsBytes(text).first(size)).ok());
      const auto written = (*writer)->Commit();
      ASSERT_TRUE(written.ok()) << written.status();
      const auto head = HeadBlocking(bucket.store(), "k");
      ASSERT_TRUE(head->checksum);
      EXPECT_EQ(head->checksum->kind, kind);
      EXPECT_EQ(head->checksum->digest, DigestOf(kind, AsBytes(text).first(size)));
    }
  }
}

TEST(StreamWriter, SmallObjectsAreOnePut) {
  FailingBucket bucket({});
  const std::string whole(8 << 20, 'x');
  auto writer = bucket.store().Write("k", {});
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE((*writer)->Append(AsBytes(whole)).ok());
  EXPECT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(bucket.Answers("PUT"), 1u);
  EXPECT_EQ(bucket.Answers("POST"), 0u);
}

TEST(StreamWriter, AFailedPutIsTheErrorOfTheCommit) {
  FailingBucket bucket({"PUT bkt/k status=403"});
  auto writer = bucket.store().Write("k", {});
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE((*writer)->Append(AsBytes("x")).ok());
  EXPECT_EQ((*writer)->Commit().status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(StreamWriter, AnObjectThatIsTooLargeForTheStoreIsNotCommitted) {
  ScriptedStore store;
  store.set_limits({.most_pieces = 2});
  const std::string text(200'000, 'x');  // the two parts have 64 KiB
  auto writer = store.Write("k", {});
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ((*writer)->Append(AsBytes(text)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*writer)->Commit().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(HeadBlocking(store, "k").ok());
}

// ---- Of an object whose length is known

class KnownLength : public ::testing::Test {
 protected:
  static std::string Text(size_t size) {
    Rng rng(size);
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(rng.Next());
    return text;
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Open(uint64_t bytes) {
    return StreamWriter::Open(store_, "k", {}, bytes, memory_);
  }

  MemoryBudget memory_{1 << 20};  // pieces of 64 KiB
  MemoryStore store_{"m"};
};

TEST_F(KnownLength, SizesAroundPieces) {
  for (const size_t size : {1, 65'535, 65'536, 65'537, 1'000'000, 3'000'000}) {
    const std::string text = Text(size);
    const auto stream = Open(size);
    ASSERT_TRUE(stream.ok()) << stream.status();
    Rng rng(1);
    for (size_t at = 0; at < size;) {
      const size_t length = std::min<size_t>(size - at, 1 + rng.Below(100'000));
      ASSERT_TRUE((*stream)->Append(AsBytes(text).subspan(at, length)).ok());
      EXPECT_LE(memory_.used(), memory_.limit() / 2);
      at += length;
    }
    EXPECT_FALSE(HeadBlocking(store_, "k").ok()) << "nothing is visible before Commit";
    const auto info = (*stream)->Commit();
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(*ReadAll(store_, "k", 1 << 30), text);
    ASSERT_TRUE(DeleteBlocking(store_, "k").ok());
  }
  EXPECT_EQ(memory_.used(), 0u);
}

TEST_F(KnownLength, MoreAndFewerBytesThanAnnounced) {
  for (const size_t size : {100, 200'000}) {
    const std::string text = Text(size);
    {
      const auto stream = Open(size);
      ASSERT_TRUE((*stream)->Append(AsBytes(text)).ok());
      EXPECT_EQ((*stream)->Append(AsBytes("x")).code(), absl::StatusCode::kInternal);
    }
    {
      const auto stream = Open(size);
      ASSERT_TRUE((*stream)->Append(AsBytes(text).first(size - 1)).ok());
      EXPECT_EQ((*stream)->Commit().status().code(), absl::StatusCode::kInternal);
    }
    EXPECT_FALSE(HeadBlocking(store_, "k").ok());
  }
}

TEST_F(KnownLength, NoMemory) {
  const Reservation all = memory_.TryReserve(memory_.limit());
  const auto stream = Open(200'000);
  ASSERT_TRUE(stream.ok());
  const absl::Status status = (*stream)->Append(AsBytes("x"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.ToString().find("--memory"), std::string::npos) << status;
}

TEST_F(KnownLength, AStopEndsIt) {
  std::stop_source stop;
  PutOptions options;
  options.stop = stop.get_token();
  const auto stream = StreamWriter::Open(store_, "k", options, 10 << 20, memory_);
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE((*stream)->Append(AsBytes(Text(100'000))).ok());
  stop.request_stop();
  absl::Status status = (*stream)->Append(AsBytes(Text((10 << 20) - 100'000)));
  if (status.ok()) status = (*stream)->Commit().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_FALSE(HeadBlocking(store_, "k").ok());
}

TEST_F(KnownLength, TheFirstErrorOfAPieceEndsIt) {
  ScriptedStore store;
  store.on_write = [](size_t index) {
    return index == 3 ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
  };
  const auto stream = StreamWriter::Open(store, "k", {}, 3 << 20, memory_);
  ASSERT_TRUE(stream.ok());
  absl::Status status = (*stream)->Append(AsBytes(Text(3 << 20)));
  if (status.ok()) status = (*stream)->Commit().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(HeadBlocking(store, "k").ok());
}

}  // namespace
}  // namespace millrace
