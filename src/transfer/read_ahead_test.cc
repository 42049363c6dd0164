#include "transfer/read_ahead.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "store/blocking.h"
#include "store/memory_store.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// Holds back reads until `release_at` of them wait, then answers on a thread of its own, in random order. The bytes
// are the low byte of the offset; reads of "bad" fail.
class ShufflingStore final : public ObjectStore {
 public:
  explicit ShufflingStore(size_t release_at) : release_at_(release_at) {}

  std::string Uri(std::string_view key) const override { return fmt::format("test://{}", key); }
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    std::lock_guard lock(mutex_);
    bytes_ += into.size();
    most_bytes_ = std::max(most_bytes_, bytes_);
    held_.push_back({std::move(key), into, std::move(options), std::move(done)});
    most_requests_ = std::max(most_requests_, held_.size());
    released_ = released_ || held_.size() == release_at_;
    if (released_) thread_.Submit([this] { AnswerAll(); });
  }
  void Head(std::string, HeadCallback) override { std::abort(); }
  void Put(std::string, ByteSpan, PutOptions, PutCallback) override { std::abort(); }
  void Delete(std::string, DoneCallback) override { std::abort(); }
  void List(ListOptions, ListCallback) override { std::abort(); }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(std::string, PutOptions) override { std::abort(); }
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string, Pieces, PutOptions) override { std::abort(); }
  const RequestCounters& counters() const override { return counters_; }

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
  RequestCounters counters_;
  ThreadPool thread_{1, "answers"};
};

ReadAhead::Source Ranges(const std::vector<ByteRange>& ranges, std::string key = "k") {
  return [ranges, key, next = size_t{0}]() mutable -> absl::StatusOr<std::optional<ReadAhead::Request>> {
    if (next == ranges.size()) return std::nullopt;
    ReadAhead::Request request;
    request.key = key;
    request.range = ranges[next++];
    return request;
  };
}

TEST(ReadAhead, ResultsComeInOrderWhateverTheStoreDoes) {
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
  ReadAhead reads(store, memory, Ranges(ranges));
  for (const ByteRange& range : ranges) {
    const auto result = reads.Next();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->has_value());
    ASSERT_EQ(AsText((*result)->bytes.span()), bytes.substr(range.offset, range.length));
  }
  EXPECT_FALSE(reads.Next()->has_value());
  EXPECT_EQ(memory.used(), 0u);
}

size_t CountAll(ReadAhead& reads, absl::Status* status) {
  for (size_t count = 0;; ++count) {
    const auto result = reads.Next();
    *status = result.status();
    if (!result.ok() || !result->has_value()) return count;
  }
}

TEST(ReadAhead, AtMost256Requests) {
  ShufflingStore store(256);  // the test would hang if fewer were in flight
  MemoryBudget memory(64 << 20);
  absl::Status status;
  ReadAhead reads(store, memory, Ranges(std::vector<ByteRange>(2000, {5, 1000})));
  EXPECT_EQ(CountAll(reads, &status), 2000u);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(store.most_requests(), 256u);
  EXPECT_EQ(memory.used(), 0u);
}

TEST(ReadAhead, HalfTheBudgetInBytes) {
  ShufflingStore store(8);
  MemoryBudget memory(16'000);
  absl::Status status;
  ReadAhead reads(store, memory, Ranges(std::vector<ByteRange>(200, {5, 1000})));
  EXPECT_EQ(CountAll(reads, &status), 200u);
  EXPECT_EQ(store.most_bytes(), 8'000u);
}

TEST(ReadAhead, ALargeRangeIsReadAlone) {
  ShufflingStore store(1);
  MemoryBudget memory(16'000);
  absl::Status status;
  ReadAhead reads(store, memory, Ranges({{0, 15'000}, {0, 15'000}, {0, 10}}));
  EXPECT_EQ(CountAll(reads, &status), 3u);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ReadAhead, ABudgetThatIsTooSmallIsNamed) {
  ShufflingStore store(1);
  MemoryBudget memory(1 << 20);
  const Reservation other = memory.TryReserve(1 << 19);
  ReadAhead reads(store, memory, Ranges({{0, 600'000}}));
  const absl::Status status = reads.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(),
              HasSubstr("test://k: reading needs 585.9 KiB of memory; 512.0 KiB of 1.0 MiB are in use"));
}

TEST(ReadAhead, ErrorsOfTheStoreAndOfTheSource) {
  ShufflingStore store(1);
  MemoryBudget memory(1 << 20);
  absl::Status status;
  ReadAhead bad(store, memory, Ranges({{0, 10}}, "bad"));
  EXPECT_EQ(CountAll(bad, &status), 0u);
  EXPECT_EQ(status.message(), "test://bad: damaged");
  ReadAhead broken(store, memory, []() -> absl::StatusOr<std::optional<ReadAhead::Request>> {
    return absl::NotFoundError("no list");
  });
  EXPECT_EQ(broken.Next().status().code(), absl::StatusCode::kNotFound);
}

TEST(ReadAhead, EmptyRangesCostNoRequest) {
  ShufflingStore store(1);
  MemoryBudget memory(1 << 20);
  absl::Status status;
  ReadAhead reads(store, memory, Ranges(std::vector<ByteRange>(10, {7, 0})));
  EXPECT_EQ(CountAll(reads, &status), 10u);
  EXPECT_EQ(store.most_requests(), 0u);
}

TEST(ReadAhead, TheEndCancelsAndWaits) {
  ShufflingStore store(101);  // the 101st read, asked for by the thread below, is never made: Release lets them go
  MemoryBudget memory(1 << 20);
  std::optional<ReadAhead> reads;
  size_t asked = 0;
  reads.emplace(store, memory, [&]() -> absl::StatusOr<std::optional<ReadAhead::Request>> {
    if (asked == 100) return absl::NotFoundError("the list ends in an error, so Next() does not wait");
    ++asked;
    ReadAhead::Request request;
    request.key = "k";
    request.range = {0, 100};
    return request;
  });
  EXPECT_EQ(reads->Next().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(memory.used(), 10'000u);
  std::jthread end([&] { reads.reset(); });
  // Nothing can end before the reads are let go; all of them must then have been told to stop, or have been answered.
  store.Release();
  end.join();
  EXPECT_EQ(memory.used(), 0u);
}

}  // namespace
}  // namespace millrace
