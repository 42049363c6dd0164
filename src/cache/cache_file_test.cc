#include "cache/cache_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using cache_format::kDataAt;
using cache_format::kRecordBytes;
using cache_format::RecordsAt;

// File systems may count blocks of their own, and some later than others.
constexpr uint64_t kSlack = 32'768;

class CacheFileTest : public ::testing::Test {
 protected:
  CacheFileTest() {
    Rng rng(3);
    for (char& c : object_) c = static_cast<char>(rng.Next());
  }

  std::string path() const { return folder_ / cache_format::FileName(identity_); }
  std::unique_ptr<CacheFile> OpenOrMake() {
    bool made = false;
    auto file = CacheFile::OpenOrMake(path(), identity_, object_.size(), nullptr, &made);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  absl::Status Write(CacheFile& file, ByteRange range) {
    const auto take = [&](uint64_t bytes) {
      taken_ += bytes;
      return absl::OkStatus();
    };
    const auto give_back = [&](uint64_t bytes) { taken_ -= bytes; };
    return file.Write(range.offset, AsBytes(object_).subspan(range.offset, range.length), {}, {take, give_back});
  }
  absl::Status Read(CacheFile& file, ByteRange range) {
    std::string into(range.length, '?');
    const absl::Status status = file.Read(range, {}, AsWritableBytes(into));
    if (status.ok()) {
      EXPECT_EQ(into, object_.substr(range.offset, range.length));
    }
    return status;
  }
  uint64_t DiskBytes() const {
    struct stat info {};
    EXPECT_EQ(stat(path().c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes;
  }

  TempFolder folder_;
  const CacheIdentity identity_{"store", "key", "etag"};
  std::string object_ = std::string(200'000, '\0');
  uint64_t taken_ = 0;
};

// A change is announced before its record is written. Another process that looks at that moment does not find it, and
// looks again.
TEST_F(CacheFileTest, ARecordThatIsOnItsWayIsLearnedWhenItIsThere) {
  const auto writer = OpenOrMake();
  const auto reader = OpenOrMake();
  ASSERT_TRUE(Write(*writer, {0, 10'000}).ok());
  EXPECT_TRUE(Read(*reader, {0, 10'000}).ok());
  ASSERT_TRUE(Write(*writer, {20'000, 10'000}).ok());
  // As it was between the two.
  const UniqueFd fd(open(path().c_str(), O_RDWR));
  const auto at = static_cast<off_t>(RecordsAt(object_.size()) + kRecordBytes);
  std::array<char, kRecordBytes> record{};
  ASSERT_EQ(pread(fd.get(), record.data(), record.size(), at), static_cast<ssize_t>(record.size()));
  const std::array<char, kRecordBytes> none{};
  ASSERT_EQ(pwrite(fd.get(), none.data(), none.size(), at), static_cast<ssize_t>(none.size()));
  EXPECT_TRUE(absl::IsNotFound(Read(*reader, {20'000, 10'000})));
  const auto late = OpenOrMake();
  EXPECT_TRUE(absl::IsNotFound(Read(*late, {20'000, 10'000})));
  ASSERT_EQ(pwrite(fd.get(), record.data(), record.size(), at), static_cast<ssize_t>(record.size()));
  EXPECT_TRUE(Read(*reader, {20'000, 10'000}).ok());
  EXPECT_TRUE(Read(*late, {20'000, 10'000}).ok()) << "one that has read all records at that moment, too";
  // Nor does it take the place of that record for its own.
  ASSERT_TRUE(Write(*reader, {40'000, 10'000}).ok());
  EXPECT_TRUE(Read(*writer, {20'000, 10'000}).ok());
  EXPECT_EQ(OpenOrMake()->spans(), 3u);
}

TEST_F(CacheFileTest, AFileIsMadeWithItsFirstRange) {
  const auto make = [&](ByteRange range, bool* made) {
    const CacheFile::First first{range.offset, AsBytes(object_).subspan(range.offset, range.length), {7, 8}};
    EXPECT_TRUE(first.fits());
    taken_ = CacheFile::kEmptyDiskBytes + first.disk_bytes();
    return *CacheFile::OpenOrMake(path(), identity_, object_.size(), &first, made);
  };
  bool made = false;
  const auto file = make({50'000, 10'001}, &made);
  EXPECT_TRUE(made);
  EXPECT_LE(DiskBytes(), taken_);
  EXPECT_GE(DiskBytes() + kSlack, taken_);
  const std::vector<CachedSpan> all = *file->All();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].range, (ByteRange{50'000, 10'001}));
  EXPECT_EQ(all[0].hints, (UseHints{7, 8}));
  EXPECT_TRUE(Read(*file, {50'000, 10'001}).ok());
  EXPECT_TRUE(absl::IsNotFound(Read(*file, {49'999, 10})));
  // It continues as if the range had been written; others see all of it.
  const auto other = OpenOrMake();
  EXPECT_TRUE(Read(*other, {50'500, 100}).ok());
  ASSERT_TRUE(Write(*other, {0, 20'000}).ok());
  ASSERT_TRUE(Write(*file, {20'000, 30'000}).ok());
  EXPECT_TRUE(Read(*file, {0, 60'001}).ok());
  EXPECT_TRUE(Read(*other, {0, 60'001}).ok());
  EXPECT_EQ(OpenOrMake()->spans(), 3u);
  // A file that is there is opened as it is.
  const auto late = make({100'000, 10}, &made);
  EXPECT_FALSE(made);
  EXPECT_EQ(late->spans(), 3u);
  EXPECT_TRUE(absl::IsNotFound(Read(*late, {100'000, 10})));
}

TEST_F(CacheFileTest, AFirstRangeIsOneThatIsWrittenAsOne) {
  const std::string bytes(2 << 20, 'x');
  const auto fits = [&](uint64_t offset, uint64_t length) {
    return CacheFile::First{offset, AsBytes(bytes).first(length), {}}.fits();
  };
  EXPECT_FALSE(fits(0, 0));
  EXPECT_TRUE(fits(0, 1 << 20));
  EXPECT_FALSE(fits(0, (1 << 20) + 1));
  EXPECT_FALSE(fits(1, 1 << 20));
  EXPECT_TRUE(fits((5 << 20) - 1, 1));
  EXPECT_FALSE(fits((5 << 20) - 1, 2));
}

TEST_F(CacheFileTest, ChangesOfTwoProcessesAreNumberedOn) {
  const auto one = OpenOrMake();
  const auto two = OpenOrMake();
  for (uint64_t i = 0; i < 40; ++i) {
    CacheFile& writer = i % 2 == 0 ? *one : *two;
    CacheFile& reader = i % 2 == 0 ? *two : *one;
    const ByteRange range{i * 5000, 5000};
    EXPECT_TRUE(absl::IsNotFound(Read(writer, range)));
    ASSERT_TRUE(Write(writer, range).ok());
    EXPECT_TRUE(Read(reader, range).ok());
    const absl::StatusOr<uint64_t> removed = i % 3 == 0 ? reader.Remove(range) : 0;
    EXPECT_TRUE(removed.ok());
  }
  for (uint64_t i = 0; i < 40; ++i) {
    for (CacheFile* file : {one.get(), two.get()}) EXPECT_EQ(Read(*file, {i * 5000, 5000}).ok(), i % 3 != 0) << i;
  }
}

// The file that is being made is locked, for a moment.
TEST_F(CacheFileTest, OpeningWaitsForWhoMakesIt) {
  OpenOrMake();
  const UniqueFd fd(open(path().c_str(), O_RDWR));
  ASSERT_EQ(flock(fd.get(), LOCK_EX), 0);
  EXPECT_TRUE(absl::IsNotFound(CacheFile::Open(path()).status())) << "but not for long";
  std::atomic<bool> opened = false;
  std::thread opening([&] {
    while (!opened) opened = CacheFile::Open(path()).ok();
  });
  ASSERT_EQ(flock(fd.get(), LOCK_UN), 0);
  opening.join();
  EXPECT_TRUE(opened);
}

// A damaged range gives its room back.
TEST_F(CacheFileTest, TellsWhatRemovingDamageHasFreed) {
  const auto file = OpenOrMake();
  ASSERT_TRUE(Write(*file, {0, 40'960}).ok());
  ASSERT_TRUE(Write(*file, {40'960, 40'960}).ok());
  const UniqueFd fd(open(path().c_str(), O_RDWR));
  const char other = static_cast<char>(object_[50'000] ^ 1);
  ASSERT_EQ(pwrite(fd.get(), &other, 1, static_cast<off_t>(kDataAt + 50'000)), 1);
  const uint64_t before = DiskBytes();
  std::string into(81'920, '?');
  uint64_t freed = 0;
  EXPECT_TRUE(absl::IsDataLoss(file->Read({40'960, 40'960}, {}, AsWritableBytes(into).first(40'960), &freed)));
  EXPECT_EQ(freed, 40'960u);
  EXPECT_LE(DiskBytes(), before - freed + kSlack);
  EXPECT_TRUE(absl::IsNotFound(file->Read({40'960, 40'960}, {}, AsWritableBytes(into).first(40'960), &freed)));
  EXPECT_EQ(freed, 40'960u);
}

// Compares what is read with what was written: any ranges, read in any pieces.
TEST_F(CacheFileTest, AnyPieceOfWhatWasWrittenIsReadAndNothingElse) {
  Rng rng(11);
  for (int round = 0; round < 10; ++round) {
    std::filesystem::remove(path());
    const auto file = OpenOrMake();
    std::vector<bool> written(object_.size());
    for (int i = 0; i < 12; ++i) {
      const uint64_t offset = rng.Below(object_.size());
      const ByteRange range{offset, 1 + rng.Below(std::min<uint64_t>(40'000, object_.size() - offset))};
      ASSERT_TRUE(Write(*file, range).ok());
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(range.offset), range.length, true);
    }
    for (int i = 0; i < 200; ++i) {
      const uint64_t offset = rng.Below(object_.size());
      const ByteRange range{offset, 1 + rng.Below(std::min<uint64_t>(60'000, object_.size() - offset))};
      const auto begin = written.begin() + static_cast<std::ptrdiff_t>(range.offset);
      const bool there =
          std::all_of(begin, begin + static_cast<std::ptrdiff_t>(range.length), [](bool b) { return b; });
      EXPECT_EQ(Read(*file, range).ok(), there) << range.offset << "+" << range.length;
    }
  }
}

// All ranges that are damaged go, also if only a part is damaged that nobody wants; the others stay.
TEST_F(CacheFileTest, AllDamageOfARangeIsFoundAtOnce) {
  const auto file = OpenOrMake();
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Write(*file, {i * 40'000, 40'000}).ok());
  const UniqueFd fd(open(path().c_str(), O_RDWR));
  for (const uint64_t at : {uint64_t{10'000}, uint64_t{90'000}, uint64_t{195'000}}) {
    const char other = static_cast<char>(object_[at] ^ 4);
    ASSERT_EQ(pwrite(fd.get(), &other, 1, static_cast<off_t>(kDataAt + at)), 1);
  }
  EXPECT_TRUE(absl::IsDataLoss(Read(*file, {20'000, 170'000})));
  EXPECT_EQ(file->spans(), 2u);
  EXPECT_TRUE(Read(*file, {40'000, 40'000}).ok());
  EXPECT_TRUE(Read(*file, {120'000, 40'000}).ok());
}

class LargeCacheFileTest : public CacheFileTest {
 protected:
  LargeCacheFileTest() { object_.resize(40 << 20, 'x'); }
};

// Its edges are checked aside, a little at a time, however long it is.
TEST_F(LargeCacheFileTest, ALongPieceIsReadInPlace) {
  const auto file = OpenOrMake();
  ASSERT_TRUE(Write(*file, {0, object_.size()}).ok());
  EXPECT_TRUE(Read(*file, {1000, object_.size() - 2000}).ok());
  const UniqueFd fd(open(path().c_str(), O_RDWR));
  ASSERT_EQ(pwrite(fd.get(), "y", 1, static_cast<off_t>(kDataAt + object_.size() - 10)), 1);
  EXPECT_TRUE(absl::IsDataLoss(Read(*file, {1000, object_.size() - 2000})));
  EXPECT_EQ(file->spans(), 39u);
}

// Imitates a writer that was killed between the bytes and their record.
TEST_F(CacheFileTest, WhatKilledWritersHaveLeftIsFreed) {
  {
    const auto file = OpenOrMake();
    ASSERT_TRUE(Write(*file, {0, 20'000}).ok());
    ASSERT_TRUE(Write(*file, {100'000, 20'000}).ok());
  }
  const uint64_t before = DiskBytes();
  EXPECT_LE(OpenOrMake()->Reclaim(), kSlack);
  EXPECT_LE(DiskBytes(), before + kSlack);
  const UniqueFd fd(open(path().c_str(), O_RDWR));
  for (const uint64_t at : {20'000, 150'000}) {
    ASSERT_EQ(pwrite(fd.get(), object_.data() + at, 40'000, static_cast<off_t>(kDataAt + at)), 40'000);
  }
  EXPECT_GE(DiskBytes() + kSlack, before + 72'000);
  const auto file = OpenOrMake();
  EXPECT_GE(file->Reclaim() + kSlack, 72'000u);
  EXPECT_LE(DiskBytes(), before + kSlack);
  EXPECT_EQ(file->Reclaim(), 0u);
  EXPECT_TRUE(Read(*file, {0, 20'000}).ok());
  EXPECT_TRUE(Read(*file, {100'000, 20'000}).ok());
}

// A write that fails in the middle, as on a full disk, leaves neither bytes nor a count of them.
TEST_F(CacheFileTest, AFailedWriteTakesNoRoom) {
  { ASSERT_TRUE(Write(*OpenOrMake(), {0, 20'480}).ok()); }
  const uint64_t before = DiskBytes();
  for (const uint64_t limit : {kDataAt + 60'000, RecordsAt(object_.size()) + kRecordBytes}) {
    const pid_t pid = fork();
    if (pid == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit bound{limit, limit};
      const auto file = OpenOrMake();
      taken_ = 0;
      if (setrlimit(RLIMIT_FSIZE, &bound) != 0) _exit(1);
      const absl::Status status = Write(*file, {40'960, 81'920});
      _exit(status.ok() ? 2 : taken_ != 0 ? 3 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "at " << limit;
    EXPECT_LE(DiskBytes(), before + kSlack) << "at " << limit;
  }
  const auto file = OpenOrMake();
  EXPECT_TRUE(Read(*file, {0, 20'480}).ok());
  EXPECT_TRUE(Write(*file, {40'960, 81'920}).ok());
  EXPECT_TRUE(Read(*file, {40'960, 81'920}).ok());
}

}  // namespace
}  // namespace millrace
