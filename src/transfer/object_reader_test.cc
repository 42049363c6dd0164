#include "transfer/object_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "s3/checksum.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// Holds back reads until `release_at` of them wait, then answers on a thread of its own, in random order. The bytes
// are the low byte of the offset; reads of "bad" fail.
class ShufflingStore final : public ForwardingStore {
 public:
  explicit ShufflingStore(size_t release_at) : release_at_(release_at) {}

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    std::lock_guard lock(mutex_);
    bytes_ += into.size();
    most_bytes_ = std::max(most_bytes_, bytes_);
    held_.push_back({std::move(key), into, std::move(options), std::move(done)});
    most_requests_ = std::max(most_requests_, held_.size());
    released_ = released_ || held_.size() == release_at_;
    if (released_) thread_.Submit([this] { AnswerAll(); });
  }
  /// From now on nothing is held back.
  void Release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    thread_.Submit([this] { AnswerAll(); });
  }
  uint64_t most_bytes() {
    std::lock_guard lock(mutex_);
    return most_bytes_;
  }
  size_t most_requests() {
    std::lock_guard lock(mutex_);
    return most_requests_;
  }

 private:
  struct Held {
    std::string key;
    MutableByteSpan into;
    GetOptions options;
    GetCallback done;
  };

  void AnswerAll() {
    for (std::unique_lock lock(mutex_); !held_.empty(); lock.lock()) {
      const size_t pick = rng_.Below(held_.size());
      Held one = std::move(held_[pick]);
      held_.erase(held_.begin() + static_cast<ptrdiff_t>(pick));
      bytes_ -= one.into.size();
      const bool stopped = one.options.stop.stop_requested();
      lock.unlock();
      if (stopped) {
        one.done(absl::CancelledError("stopped"));
        continue;
      }
      for (size_t i = 0; i < one.into.size(); ++i) one.into[i] = static_cast<std::byte>(one.options.range.offset + i);
      one.done(one.key == "bad" ? absl::StatusOr<GetResult>(absl::DataLossError("test://bad: damaged")) : GetResult{});
    }
  }

  const size_t release_at_;
  std::mutex mutex_;
  bool released_ = false;
  std::vector<Held> held_;
  uint64_t bytes_ = 0;
  uint64_t most_bytes_ = 0;
  size_t most_requests_ = 0;
  Rng rng_{7};
  ThreadPool thread_{1, "answers"};
};

ObjectReader::Source Ranges(const std::vector<ByteRange>& ranges, std::string key = "k") {
  return [ranges, key, next = size_t{0}]() mutable -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (next == ranges.size()) return std::nullopt;
    ObjectReader::Request request;
    request.object.key = key;
    request.range = ranges[next++];
    return request;
  };
}

TEST(ObjectReader, ResultsComeInOrderWhateverTheStoreDoes) {
  MemoryBudget memory(1 << 20);
  MemoryStore store("x");
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(Mix64(i));
  ASSERT_TRUE(PutBlocking(store, "k", AsBytes(bytes)).ok());
  std::vector<ByteRange> ranges;
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t offset = rng.Below(bytes.size());
    ranges.push_back({offset, rng.Below(std::min<uint64_t>(3000, bytes.size() - offset))});
  }
  ObjectReader reads(store, memory, Ranges(ranges));
  for (const ByteRange& range : ranges) {
    const auto result = reads.Next();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->has_value());
    ASSERT_EQ(AsText((*result)->bytes), bytes.substr(range.offset, range.length));
  }
  EXPECT_FALSE(reads.Next()->has_value());
  EXPECT_EQ(memory.used(), 0u);
}

size_t CountAll(ObjectReader& reads, absl::Status* status) {
  for (size_t count = 0;; ++count) {
    const auto result = reads.Next();
    *status = result.status();
    if (!result.ok() || !result->has_value()) return count;
  }
}

TEST(ObjectReader, AtMost256Requests) {
  ShufflingStore store(256);  // the test would hang if fewer were in flight
  MemoryBudget memory(64 << 20);
  absl::Status status;
  ObjectReader reads(store, memory, Ranges(std::vector<ByteRange>(2000, {5, 1000})));
  EXPECT_EQ(CountAll(reads, &status), 2000u);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(store.most_requests(), 256u);
  EXPECT_EQ(memory.used(), 0u);
}

TEST(ObjectReader, HalfTheBudgetInBytes) {
  ShufflingStore store(8);
  MemoryBudget memory(16'000);
  absl::Status status;
  ObjectReader reads(store, memory, Ranges(std::vector<ByteRange>(200, {5, 1000})));
  EXPECT_EQ(CountAll(reads, &status), 200u);
  EXPECT_EQ(store.most_bytes(), 8'000u);
}

TEST(ObjectReader, ALargeRangeIsReadAlone) {
  ShufflingStore store(1);
  MemoryBudget memory(16'000);
  absl::Status status;
  ObjectReader reads(store, memory, Ranges({{0, 15'000}, {0, 15'000}, {0, 10}}));
  EXPECT_EQ(CountAll(reads, &status), 3u);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ObjectReader, ABudgetThatIsTooSmallIsNamed) {
  ShufflingStore store(1);
  MemoryBudget memory(1 << 20);
  const Reservation other = memory.TryReserve(1 << 19);
  ObjectReader reads(store, memory, [asked = false]() mutable -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (std::exchange(asked, true)) return std::nullopt;
    return ObjectReader::Request{.object = {.key = "k"}, .range = {0, 600'000}, .in_one = true};
  });
  const absl::Status status = reads.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(),
              HasSubstr("test://k: reading needs 585.9 KiB of memory; 512.0 KiB of 1.0 MiB are in use"));
}

// Answers at once, and notes where the bytes were to go.
class PlacesStore final : public ForwardingStore {
 public:
  void Get(std::string, MutableByteSpan into, GetOptions, GetCallback done) override {
    places.insert(into.data());
    done(GetResult{});
  }
  std::set<const std::byte*> places;
};

// New memory costs a third of the time of receiving the bytes.
TEST(ObjectReader, PiecesTakeThePlacesOfThoseBefore) {
  PlacesStore store;
  MemoryBudget memory(32 << 20);
  const uint64_t piece = ObjectReader::PieceBytes(store, memory);
  ASSERT_GE(piece, 256u << 10) << "malloc() gives smaller ones the same place anyway";
  const ObjectInfo object{.key = "k", .size = 100 * piece + 1};
  ObjectReader reads(store, memory, [&, left = 2]() mutable -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (left-- == 0) return std::nullopt;
    return ObjectReader::All(object);
  });
  absl::StatusOr<std::optional<ObjectReader::Piece>> next = reads.Next();
  while (next.ok() && next->has_value()) next = reads.Next();
  ASSERT_TRUE(next.ok()) << next.status();
  const size_t window = memory.limit() / 2 / piece;
  EXPECT_LE(store.places.size(), window + 3);  // one that the caller holds, and two for the ends, which are smaller
}

TEST(ObjectReader, KeepsNoPlaceThatAnotherPieceNeeds) {
  PlacesStore store;
  MemoryBudget memory(100'000);
  ObjectReader reads(store, memory, Ranges({{0, 60'000}, {0, 50'000}, {0, 65'000}, {0, 10}}));
  for (const uint64_t bytes : {60'000, 50'000, 65'000, 10}) {
    const auto next = reads.Next();
    ASSERT_TRUE(next.ok() && next->has_value()) << next.status();
    EXPECT_EQ((*next)->bytes.size(), bytes);
  }
  ASSERT_FALSE(reads.Next()->has_value());
  EXPECT_EQ(memory.used(), 0u) << "and none at the end";
}

TEST(ObjectReader, ErrorsOfTheStoreAndOfTheSource) {
  ShufflingStore store(1);
  MemoryBudget memory(1 << 20);
  absl::Status status;
  ObjectReader bad(store, memory, Ranges({{0, 10}}, "bad"));
  EXPECT_EQ(CountAll(bad, &status), 0u);
  EXPECT_EQ(status.message(), "test://bad: damaged");
  ObjectReader broken(store, memory, []() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    return absl::NotFoundError("no list");
  });
  EXPECT_EQ(broken.Next().status().code(), absl::StatusCode::kNotFound);
}

TEST(ObjectReader, EmptyRangesCostNoRequest) {
  ShufflingStore store(1);
  MemoryBudget memory(1 << 20);
  absl::Status status;
  ObjectReader reads(store, memory, Ranges(std::vector<ByteRange>(10, {7, 0})));
  EXPECT_EQ(CountAll(reads, &status), 10u);
  EXPECT_EQ(store.most_requests(), 0u);
}

TEST(ObjectReader, TheEndCancelsAndWaits) {
  ShufflingStore store(101);  // the 101st read, asked for by the thread below, is never made: Release lets them go
  MemoryBudget memory(1 << 20);
  std::optional<ObjectReader> reads;
  size_t asked = 0;
  reads.emplace(store, memory, [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (asked == 100) return absl::NotFoundError("the list ends in an error, so Next() does not wait");
    ++asked;
    ObjectReader::Request request;
    request.object.key = "k";
    request.range = {0, 100};
    return request;
  });
  EXPECT_EQ(reads->Next().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(memory.used(), 10'000u);
  std::jthread end([&] { reads.reset(); });
  // Nothing can end before the reads are released; all of them must then have been asked to stop, or have been
  // answered.
  store.Release();
  end.join();
  EXPECT_EQ(memory.used(), 0u);
}

// Holds one request, and its pieces.
struct Pieced {
  absl::Status status;
  std::string bytes;
  std::vector<ByteRange> pieces;
  int begun = 0;
};

Pieced ReadOne(ObjectStore& store, MemoryBudget& memory, ObjectReader::Request request) {
  Pieced result;
  result.status = ReadPieces(store, memory, std::move(request), {}, [&result](const ObjectReader::Piece& piece) {
    if (piece.first) {
      result.bytes.clear();
      result.pieces.clear();
      ++result.begun;
    }
    result.bytes += AsText(piece.bytes);
    result.pieces.push_back({piece.offset, piece.bytes.size()});
    return absl::OkStatus();
  });
  return result;
}

// The object has ten pieces and a half, and was uploaded in parts of three quarters of a piece.
class LargeObjectTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPiece = 64 << 10;

  LargeObjectTest() {
    Rng rng(3);
    for (char& c : text_) c = static_cast<char>(rng.Next());
    store_.part_bytes = kPiece / 4 * 3;
    const auto put = PutBlocking(store_, "k", AsBytes(text_));
    EXPECT_TRUE(put.ok()) << put.status();
    // The ETag looks as that of a multipart upload, for the parts to be requested.
    object_ = {.key = "k", .size = text_.size(), .etag = put->etag};
  }

  std::string text_ = std::string(kPiece * 10 + kPiece / 2, '\0');
  ScriptedStore store_;
  MemoryBudget memory_{1 << 20};
  ObjectInfo object_;
};

TEST_F(LargeObjectTest, ComesInPieces) {
  const Pieced all = ReadOne(store_, memory_, ObjectReader::All(object_));
  ASSERT_TRUE(all.status.ok()) << all.status;
  EXPECT_EQ(all.bytes, text_);
  EXPECT_EQ(all.pieces.size(), 11u);
  for (const GetOptions& get : store_.gets()) {
    EXPECT_EQ(get.if_match, object_.etag);
    EXPECT_FALSE(get.whole);
  }
  // A range keeps to the same pieces.
  const Pieced some = ReadOne(store_, memory_, {.object = object_, .range = {100, 3 * kPiece}});
  ASSERT_TRUE(some.status.ok()) << some.status;
  EXPECT_EQ(some.bytes, text_.substr(100, 3 * kPiece));
  ASSERT_EQ(some.pieces.size(), 4u);
  EXPECT_EQ(some.pieces[1].offset, kPiece);
  EXPECT_EQ(memory_.used(), 0u);
}

TEST_F(LargeObjectTest, InOnePieceOrWhereTheCallerWantsIt) {
  ObjectReader::Request request = ObjectReader::All(object_);
  request.in_one = true;
  const Pieced one = ReadOne(store_, memory_, request);
  ASSERT_TRUE(one.status.ok()) << one.status;
  EXPECT_EQ(one.bytes, text_);
  EXPECT_EQ(one.pieces.size(), 1u);
  EXPECT_EQ(store_.gets().size(), 11u);

  std::string place(text_.size(), '\0');
  request.into = AsWritableBytes(place);
  const Reservation all = memory_.TryReserve(memory_.limit());  // it takes none
  const Pieced placed = ReadOne(store_, memory_, request);
  ASSERT_TRUE(placed.status.ok()) << placed.status;
  EXPECT_EQ(place, text_);
  EXPECT_EQ(placed.pieces.size(), 1u);
}

TEST_F(LargeObjectTest, ChecksumsMaySpanPieces) {
  const auto sum = [this](uint64_t offset, uint64_t length) {
    return SpanChecksum{{offset, length}, Crc32c(AsBytes(std::string_view(text_).substr(offset, length)))};
  };
  for (const bool in_one : {false, true}) {
    const ObjectReader::Request request{
        .object = object_,
        .range = {50, 6 * kPiece},
        .checksums = {sum(50, 10), sum(60, 3 * kPiece), sum(3 * kPiece + 90, 1000), sum(4 * kPiece, 2 * kPiece + 50)},
        .in_one = in_one};
    const Pieced good = ReadOne(store_, memory_, request);
    ASSERT_TRUE(good.status.ok()) << good.status;
    EXPECT_EQ(good.bytes, text_.substr(50, 6 * kPiece));
    for (const size_t wrong : {0, 1, 2, 3}) {
      ObjectReader::Request bad = request;
      bad.checksums[wrong].crc32c ^= 1;
      const absl::Status status = ReadOne(store_, memory_, bad).status;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(status.ToString(),
                  HasSubstr(fmt::format("its {} bytes at offset {} are not", bad.checksums[wrong].range.length,
                                        bad.checksums[wrong].range.offset)));
    }
  }
}

TEST_F(LargeObjectTest, WhatDoesNotMatchTheStoresChecksumComesAgainIfThatHelps) {
  store_.checksum =
      ObjectChecksum{ObjectChecksum::Kind::kCrc32c, DigestOf(ObjectChecksum::Kind::kCrc32c, AsBytes(text_))};
  int damaged_times = 1;
  store_.damage = [&](MutableByteSpan bytes, const GetOptions& get, int times) {
    if (get.range.offset == 4 * kPiece && times < damaged_times) bytes[7] ^= std::byte{1};
  };
  ObjectReader::Request request = ObjectReader::All(object_);
  EXPECT_EQ(ReadOne(store_, memory_, request).status.code(), absl::StatusCode::kDataLoss);

  damaged_times = 2;
  request.begin_again = [] { return true; };
  const Pieced again = ReadOne(store_, memory_, request);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.bytes, text_);
  EXPECT_EQ(again.begun, 2);

  damaged_times = 100;
  const Pieced never = ReadOne(store_, memory_, request);
  EXPECT_THAT(never.status.ToString(), HasSubstr("twice in a row"));
  EXPECT_EQ(never.pieces.size(), 10u) << "the last piece is not handed out before all are verified";
  EXPECT_EQ(memory_.used(), 0u);
}

TEST_F(LargeObjectTest, WhatIsSkippedDoesNotCome) {
  size_t asked = 0;
  ObjectReader reads(store_, memory_, [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (asked++ == 5) return std::nullopt;
    return ObjectReader::All(object_);
  });
  for (size_t i = 0; i < 5; ++i) {
    for (size_t piece = 0; piece <= i; ++piece) {
      const auto next = reads.Next();
      ASSERT_TRUE(next.ok() && *next) << next.status();
      EXPECT_EQ((*next)->offset, piece * kPiece);
      EXPECT_EQ((*next)->first, piece == 0);
    }
    reads.SkipRest();
  }
  EXPECT_FALSE(reads.Next()->has_value());
}

TEST(ObjectReader, ManyRequestsFillMemoryOfTheCaller) {
  ShufflingStore store(200);  // the test would hang if fewer were in flight
  MemoryBudget memory(1 << 20);
  constexpr uint64_t kBytes = 300 * (64 << 10);
  std::vector<std::byte> place(kBytes);
  const Pieced read =
      ReadOne(store, memory, {.object = {.key = "k", .size = kBytes}, .range = {0, kBytes}, .into = place});
  ASSERT_TRUE(read.status.ok()) << read.status;
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(place[i], static_cast<std::byte>(i)) << i;
}

TEST(ObjectReader, AnErrorInMemoryOfTheCallerEndsTheRead) {
  ShufflingStore store(1);
  MemoryBudget memory(1 << 20);
  std::vector<std::byte> place(1000 * (64 << 10));
  const Pieced read = ReadOne(
      store, memory, {.object = {.key = "bad", .size = place.size()}, .range = {0, place.size()}, .into = place});
  EXPECT_EQ(read.status.message(), "test://bad: damaged");
}

}  // namespace
}  // namespace millrace
