#include "transfer/copy_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <thread>

#include "base/rng.h"
#include "s3/checksum.h"
#include "store/blocking.h"
#include "store/testing/scripted_store.h"

namespace millrace {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class CopyObjectTest : public ::testing::Test {
 protected:
  CopyObjectTest() {
    Rng rng(23);
    for (size_t i = 0; i < text_.size(); i += 8) StoreLe(text_.data() + i, rng.Next());
    const auto put = PutBlocking(from_, "k", AsBytes(text_));
    EXPECT_TRUE(put.ok()) << put.status();
    source_ = *put;
  }

  absl::Status Copy(std::stop_token stop = {}) {
    CopyObjectOptions options;
    options.moved = [this](uint64_t bytes) {
      landed_ += bytes;
      if (on_landed_) on_landed_();
    };
    options.before_moving = before_moving_;
    options.stop = std::move(stop);
    options.read_twice = read_twice_;
    const auto copied = CopyObject(from_, source_, to_, "copy", options);
    if (copied.ok()) {
      EXPECT_EQ(copied->info.size, text_.size());
    }
    if (copied.ok()) check_ = copied->check;
    return copied.status();
  }

  bool Copied() {
    const auto all = ReadAll(to_, "copy", text_.size());
    return all.ok() && *all == text_;
  }
  bool NothingIsThere() { return absl::IsNotFound(HeadBlocking(to_, "copy").status()); }

  std::string text_ = std::string(100 * kMiB + 16, '\0');  // 13 pieces
  ScriptedStore from_{"from"};
  ScriptedStore to_{"to"};
  ObjectInfo source_;
  bool read_twice_ = false;
  std::optional<CopyCheck> check_;  // of the last copy that succeeded
  std::atomic<uint64_t> landed_{0};
  std::function<void()> on_landed_;
  std::function<absl::Status()> before_moving_;
};

TEST_F(CopyObjectTest, CopiesAndTellsOfEachByteOnce) {
  ASSERT_TRUE(Copy().ok());
  EXPECT_TRUE(Copied());
  EXPECT_EQ(landed_, text_.size());
  EXPECT_EQ(from_.gets().size(), 13u);
  for (const GetOptions& get : from_.gets()) EXPECT_EQ(get.if_match, source_.etag);
}

/// Ends a test that would wait for ever.
class Deadline {
 public:
  explicit Deadline(std::function<void()> on_expiry)
      : thread_([this, on_expiry = std::move(on_expiry)](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          if (!ended_.wait_for(lock, stop, std::chrono::seconds(300), [] { return false; }) && !stop.stop_requested())
            on_expiry();
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;
};

TEST_F(CopyObjectTest, ALatePieceHoldsUpNoOther) {
  for (const uint64_t late : {uint64_t{0}, 5 * kPieceBytes}) {
    std::mutex mutex;
    absl::AnyInvocable<void()> held;
    std::atomic<bool> expired{false};
    const auto release = [&] {
      std::lock_guard lock(mutex);
      if (held) std::exchange(held, nullptr)();
    };
    from_.on_get = [&](const GetOptions& options, int, absl::AnyInvocable<void()> read, GetCallback&) {
      if (options.range.offset != late) return read();
      std::lock_guard lock(mutex);
      held = std::move(read);
    };
    landed_ = 0;
    // All others land before it even comes.
    on_landed_ = [&] {
      if (landed_ == text_.size() - kPieceBytes) release();
    };
    Deadline deadline([&] {
      expired = true;
      release();
    });
    ASSERT_TRUE(Copy().ok());
    EXPECT_FALSE(expired) << "the others waited for the piece at " << late;
    EXPECT_TRUE(Copied());
  }
}

TEST_F(CopyObjectTest, HoldsAFewPiecesAtATime) {
  std::mutex mutex;
  int held = 0;
  int most = 0;
  from_.on_get = [&](const GetOptions&, int, absl::AnyInvocable<void()> read, GetCallback&) {
    {
      std::lock_guard lock(mutex);
      most = std::max(most, ++held);
    }
    read();
  };
  on_landed_ = [&] {
    std::lock_guard lock(mutex);
    --held;
  };
  ASSERT_TRUE(Copy().ok());
  EXPECT_LE(most, 8);
  EXPECT_GT(most, 1);
}

TEST_F(CopyObjectTest, ReadsWholeParts) {
  source_.part_bytes = 10 * kMiB;
  ASSERT_TRUE(Copy().ok());
  EXPECT_TRUE(Copied());
  EXPECT_EQ(from_.gets().size(), 11u);
  for (const GetOptions& get : from_.gets()) {
    EXPECT_EQ(get.range.offset % (10 * kMiB), 0u);
    EXPECT_TRUE(get.part && !get.whole);
  }
}

TEST_F(CopyObjectTest, AnotherVersionIsNotCopied) {
  source_.etag += "-10";
  from_.part_bytes = 10 * kMiB;
  EXPECT_TRUE(absl::IsFailedPrecondition(Copy()));
  EXPECT_TRUE(NothingIsThere());
}

TEST_F(CopyObjectTest, LimitsOfTheTargetCount) {
  to_.set_limits({.least_bytes = 20 * kMiB, .most_pieces = 3});
  ASSERT_TRUE(Copy().ok());
  EXPECT_TRUE(Copied());
  EXPECT_LE(from_.gets().size(), 3u);
}

TEST_F(CopyObjectTest, WhatArrivesDamagedIsReadOnceMoreAndWrittenInItsPlace) {
  from_.checksum =
      ObjectChecksum{ObjectChecksum::Kind::kCrc64Nvme, DigestOf(ObjectChecksum::Kind::kCrc64Nvme, AsBytes(text_))};
  from_.damage = [](MutableByteSpan bytes, const GetOptions& options, int times) {
    if (times == 0 && options.range.offset == 3 * kPieceBytes) bytes[77] ^= std::byte{1};
  };
  ASSERT_TRUE(Copy().ok());
  EXPECT_TRUE(Copied());
  EXPECT_EQ(from_.gets().size(), 26u);
  EXPECT_EQ(to_.written().size(), 14u) << "only the damaged piece is written again";
  EXPECT_EQ(to_.written().back(), 3u);
  EXPECT_EQ(landed_, text_.size()) << "no byte is told of twice";
}

TEST_F(CopyObjectTest, WhatStaysDamagedIsDataLossAndNothingAppears) {
  from_.checksum =
      ObjectChecksum{ObjectChecksum::Kind::kCrc32c, DigestOf(ObjectChecksum::Kind::kCrc32c, AsBytes(text_))};
  from_.damage = [](MutableByteSpan bytes, const GetOptions&, int) { bytes[0] ^= std::byte{1}; };
  const absl::Status status = Copy();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(ToStd(status.message()), HasSubstr("mem://from/k: what arrived, twice in a row, does not match"));
  EXPECT_EQ(from_.gets().size(), 26u) << "twice and no more";
  EXPECT_TRUE(NothingIsThere());
}

TEST_F(CopyObjectTest, TellsWhatTheBytesWereHeldAgainst) {
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(check_, CopyCheck::kMatches) << "nothing has travelled";
  from_.set_medium(StoreTraits::Medium::kS3);
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(check_, CopyCheck::kNone);
  from_.checksum =
      ObjectChecksum{ObjectChecksum::Kind::kCrc32c, DigestOf(ObjectChecksum::Kind::kCrc32c, AsBytes(text_))};
  for (const bool read_twice : {false, true}) {
    read_twice_ = read_twice;
    const size_t gets = from_.gets().size();
    ASSERT_TRUE(Copy().ok());
    EXPECT_EQ(check_, CopyCheck::kMatches);
    EXPECT_EQ(from_.gets().size(), gets + 13);
  }
  // The parts are not those of the checksum: only the second read shows it.
  source_.part_bytes = 10 * kMiB;
  from_.checksum->parts = 11;
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(check_, CopyCheck::kReadTwice);
  from_.checksum->parts = 3;
  read_twice_ = false;
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(check_, CopyCheck::kNone) << "it cannot be compared at all";
}

TEST_F(CopyObjectTest, WhatHasNoChecksumIsReadTwiceIfItIsToBe) {
  from_.set_medium(StoreTraits::Medium::kS3);
  read_twice_ = true;
  ASSERT_TRUE(Copy().ok());
  EXPECT_TRUE(Copied());
  EXPECT_EQ(check_, CopyCheck::kReadTwice);
  EXPECT_EQ(from_.gets().size(), 26u);
  EXPECT_EQ(to_.written().size(), 13u);
  EXPECT_EQ(landed_, text_.size());
}

TEST_F(CopyObjectTest, TwoReadsThatDifferAreNoCopy) {
  from_.set_medium(StoreTraits::Medium::kS3);
  read_twice_ = true;
  from_.damage = [](MutableByteSpan bytes, const GetOptions& options, int times) {
    if (times == 0 && options.range.offset == 9 * kPieceBytes) bytes[77] ^= std::byte{1};
  };
  const absl::Status status = Copy();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(ToStd(status.message()), HasSubstr("mem://from/k: two reads brought different bytes"));
  EXPECT_TRUE(NothingIsThere());
}

TEST_F(CopyObjectTest, ASmallObjectIsReadTwiceLikewise) {
  from_.set_medium(StoreTraits::Medium::kS3);
  text_.resize(1000);
  source_ = *PutBlocking(from_, "k", AsBytes(text_));
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(check_, CopyCheck::kNone);
  read_twice_ = true;
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(check_, CopyCheck::kReadTwice);
  EXPECT_EQ(from_.gets().size(), 3u);
  from_.damage = [](MutableByteSpan bytes, const GetOptions&, int times) {
    if (times == 4) bytes[7] ^= std::byte{1};
  };
  ASSERT_TRUE(DeleteBlocking(to_, "copy").ok());
  EXPECT_EQ(Copy().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(NothingIsThere());
  // An empty one has nothing that could be wrong.
  from_.damage = nullptr;
  text_.clear();
  source_ = *PutBlocking(from_, "k", {});
  ASSERT_TRUE(Copy().ok());
  EXPECT_EQ(check_, CopyCheck::kMatches);
}

TEST_F(CopyObjectTest, TheFirstErrorEndsIt) {
  from_.on_get = [&](const GetOptions& options, int, absl::AnyInvocable<void()> read, GetCallback& done) {
    if (options.range.offset == 2 * kPieceBytes) return done(absl::NotFoundError("gone"));
    read();
  };
  EXPECT_EQ(Copy().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(NothingIsThere());
  from_.on_get = nullptr;
  to_.on_write = [](size_t index) { return index == 4 ? absl::ResourceExhaustedError("full") : absl::OkStatus(); };
  EXPECT_EQ(Copy().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(NothingIsThere());
}

TEST_F(CopyObjectTest, DamageReportedByTheTargetIsNotReadAgain) {
  to_.on_write = [](size_t) { return absl::DataLossError("the target lost it"); };
  EXPECT_EQ(Copy().code(), absl::StatusCode::kDataLoss);
  EXPECT_LE(from_.gets().size(), 13u);
}

TEST_F(CopyObjectTest, AStopEndsIt) {
  std::stop_source stop;
  on_landed_ = [&] { stop.request_stop(); };
  const absl::Status status = Copy(stop.get_token());
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(NothingIsThere());
  EXPECT_TRUE(absl::IsCancelled(Copy(stop.get_token()))) << "and does not begin after it";
}

TEST_F(CopyObjectTest, AStopInTheLastMomentIsNoCopy) {
  std::stop_source stop;
  on_landed_ = [&] {
    if (landed_ == text_.size()) stop.request_stop();
  };
  EXPECT_TRUE(absl::IsCancelled(Copy(stop.get_token())));
  EXPECT_TRUE(NothingIsThere());
}

TEST(CopyOfASizeThatIsUntrue, TakesNoMemoryAndLeavesNothing) {
  ScriptedStore from("huge-from");
  ScriptedStore to("huge-to");
  to.set_limits({.least_bytes = 5 * kMiB, .most_pieces = 10'000});
  ASSERT_TRUE(PutBlocking(from, "k", AsBytes(std::string_view("small"))).ok());
  for (const uint64_t size : {uint64_t{100} << 40, kMaxObjectBytes, uint64_t{1} << 62}) {
    const absl::Status status = CopyObject(from, {.key = "k", .size = size}, to, "copy").status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(from.Uri("k")));
  }
  EXPECT_TRUE(from.gets().empty());
  EXPECT_TRUE(absl::IsNotFound(HeadBlocking(to, "copy").status()));
}

}  // namespace
}  // namespace millrace
