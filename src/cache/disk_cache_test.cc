#include "cache/disk_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "cache/cache_tools.h"
#include "cache/testing/disk_cache_fixture.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST_F(DiskCacheTest, KeepsRangesAcrossProcessesLives) {
  for (int round = 0; round < 2; ++round) {
    const auto cache = Open();
    if (round == 0) {
      EXPECT_EQ(Read(*cache, Of(1), {0, 10}), "");
      cache->Keep(Of(1), object_.size(), 1000, AsBytes(object_.substr(1000, 5000)));
      cache->Keep(Of(1), object_.size(), 6000, AsBytes(object_.substr(6000, 1)));
      cache->Flush();
    }
    EXPECT_EQ(Read(*cache, Of(1), {1000, 5000}), object_.substr(1000, 5000));
    EXPECT_EQ(Read(*cache, Of(1), {1000, 5001}), object_.substr(1000, 5001)) << "two ranges side by side";
    EXPECT_EQ(Read(*cache, Of(1), {999, 10}), "");
    EXPECT_EQ(Read(*cache, Of(1), {5990, 20}), "");
    EXPECT_EQ(Read(*cache, {"store", "key1", "other"}, {1000, 5000}), "") << "of another version";
  }
}

TEST_F(DiskCacheTest, PartsOfRangesAreReadAndChecked) {
  const auto cache = Open();
  cache->Keep(Of(1), object_.size(), 1000, AsBytes(object_.substr(1000, 5000)));
  cache->Keep(Of(1), object_.size(), 6000, AsBytes(object_.substr(6000, 5000)));
  cache->Flush();
  const std::string part = object_.substr(1100, 100);
  const std::vector<SpanChecksum> checksums = {{{1100, 100}, Crc32c(AsBytes(part))}};
  EXPECT_EQ(Read(*cache, Of(1), {1100, 100}, checksums), part);
  EXPECT_EQ(Read(*cache, Of(1), {1100, 100}), part);
  EXPECT_EQ(Read(*cache, Of(1), {5990, 100}), object_.substr(5990, 100)) << "of two ranges";
  EXPECT_EQ(Read(*cache, Of(1), {10'990, 20}), "");
  // Nothing else tells whether a part is sound than the checksum of all of it.
  std::fstream file(FilesBelow(folder_.path()).at(0), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 4000);
  file.put(static_cast<char>(object_[4000] ^ 1));
  file.close();
  EXPECT_EQ(Read(*cache, Of(1), {1100, 100}), "");
  EXPECT_EQ(Read(*cache, Of(1), {6000, 100}), object_.substr(6000, 100));
}

TEST_F(DiskCacheTest, LongRangesAreCheckedInParts) {
  const auto cache = Open();
  const std::string object = RandomBytes(3 << 20, 2);
  cache->Keep(Of(1), object.size(), 500'000, AsBytes(object).subspan(500'000));
  cache->Flush();
  std::fstream file(FilesBelow(folder_.path()).at(0), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 2'900'000);
  file.put(static_cast<char>(object[2'900'000] ^ 1));
  file.close();
  EXPECT_EQ(Read(*cache, Of(1), {600'000, 1'400'000}), object.substr(600'000, 1'400'000));
  EXPECT_EQ(Read(*cache, Of(1), {2'500'000, 10}), "") << "its part is damaged";
  EXPECT_EQ(Read(*cache, Of(1), {500'000, 1'500'000}), object.substr(500'000, 1'500'000)) << "the others stay";
}

// Rows of tokens know the checksums of some of their pieces.
TEST_F(DiskCacheTest, WhatTheCallerCannotCheckIsCheckedAsItWasWritten) {
  const auto cache = Open();
  cache->Keep(Of(1), object_.size(), 0, AsBytes(object_).first(10'000));
  cache->Keep(Of(1), object_.size(), 10'000, AsBytes(object_).subspan(10'000, 10'000));
  cache->Flush();
  const auto sum = [&](ByteRange range) {
    return SpanChecksum{range, Crc32c(AsBytes(object_).subspan(range.offset, range.length))};
  };
  EXPECT_EQ(Read(*cache, Of(1), {0, 20'000}, {sum({2000, 3000})}), object_.substr(0, 20'000));
  EXPECT_EQ(Read(*cache, Of(1), {5000, 15'000}, {sum({5000, 5000})}), object_.substr(5000, 15'000));
  EXPECT_EQ(Read(*cache, Of(1), {5000, 15'000}, {sum({5000, 4000})}), object_.substr(5000, 15'000))
      << "read whole for that";
  std::fstream file(FilesBelow(folder_.path()).at(0), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 17'000);
  file.put(static_cast<char>(object_[17'000] ^ 1));
  file.close();
  EXPECT_EQ(Read(*cache, Of(1), {0, 20'000}, {sum({0, 15'000})}), "");
  EXPECT_EQ(Read(*cache, Of(1), {0, 10'000}), object_.substr(0, 10'000)) << "what is sound stays";
}

TEST_F(DiskCacheTest, OverlapsAreWrittenOnce) {
  const auto cache = Open();
  for (const auto& [offset, length] : {std::pair(0, 100), std::pair(50, 100), std::pair(300, 100), std::pair(0, 500)})
    cache->Keep(Of(1), object_.size(), offset, AsBytes(object_).subspan(offset, length));
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(1), {0, 500}), object_.substr(0, 500));
  EXPECT_EQ(fs::file_size(FilesBelow(folder_.path()).at(0)), 4096 + 102'400 + 4096 + 5 * 32)
      << "a record of each new part";
}

TEST_F(DiskCacheTest, DamageIsFoundAndHealed) {
  {
    const auto cache = Open();
    cache->Keep(Of(1), object_.size(), 0, AsBytes(object_).first(50'000));
    cache->Keep(Of(1), object_.size(), 50'000, AsBytes(object_).subspan(50'000));
    cache->Flush();
  }
  const std::string path = FilesBelow(folder_.path()).at(0);
  Rng rng(7);
  for (int i = 0; i < 100; ++i) {
    const uint64_t at = rng.Next() % object_.size();
    const int bit = static_cast<int>(rng.Next() % 8);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(4096 + at));
    file.put(static_cast<char>(object_[at] ^ (1 << bit)));
    file.close();
    const auto cache = Open();
    const bool first = at < 50'000;
    EXPECT_EQ(Read(*cache, Of(1), first ? ByteRange{0, 50'000} : ByteRange{50'000, 50'000}), "") << at;
    EXPECT_EQ(Read(*cache, Of(1), first ? ByteRange{50'000, 50'000} : ByteRange{0, 50'000}).size(), 50'000u);
    // The range is kept again, as after a miss.
    cache->Keep(Of(1), object_.size(), 0, AsBytes(object_));
    cache->Flush();
    EXPECT_EQ(Read(*cache, Of(1), {0, object_.size()}), object_);
  }
}

TEST_F(DiskCacheTest, WhateverAFileHasNoWrongByteIsRead) {
  {
    const auto cache = Open();
    for (uint64_t at = 0; at < object_.size(); at += 10'000)
      cache->Keep(Of(1), object_.size(), at, AsBytes(object_).subspan(at, 10'000));
    cache->Flush();
  }
  const std::string path = FilesBelow(folder_.path()).at(0);
  std::ifstream in(path, std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), {});
  Rng rng(11);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = sound;
    const uint64_t kind = rng.Next() % 4;
    const size_t at = rng.Next() % damaged.size();
    if (kind == 0) damaged.resize(at);
    if (kind == 1) damaged.insert(at, RandomBytes(1 + rng.Next() % 100, i));
    if (kind == 2)
      damaged.replace(at, std::min<size_t>(4096, damaged.size() - at), std::min<size_t>(4096, damaged.size() - at),
                      '\0');
    if (kind == 3) damaged[at] = static_cast<char>(rng.Next());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    const auto cache = Open();
    for (uint64_t from = 0; from < object_.size(); from += 10'000) {
      const std::string got = Read(*cache, Of(1), {from, 10'000});
      EXPECT_TRUE(got.empty() || got == object_.substr(from, 10'000)) << "case " << i << ", from " << from;
    }
    cache->Keep(Of(1), object_.size(), 0, AsBytes(object_));
  }
}

// With a plan, what is needed first stays, and what comes later than all that is there is not written.
TEST_F(DiskCacheTest, StaysWithinItsBoundAndKeepsWhatIsNeededFirst) {
  constexpr uint64_t kBound = 1 << 20;
  constexpr uint32_t kJob = 9;
  for (const bool ascending : {true, false}) {
    fs::remove_all(folder_ / "millrace-cache-1");
    const auto cache = Open(kBound);
    const auto entry = cache->Join("store", kJob, 1000);
    for (int i = 0; i < 40; ++i) {
      const auto next_use = static_cast<uint64_t>(ascending ? i : 39 - i);
      const PlannedRead plan{.job = kJob, .use = 0, .period = 1000, .spans = {{{0, object_.size()}, 100 + next_use}}};
      cache->Keep(Of(i), object_.size(), 0, AsBytes(object_), &plan);
      cache->Flush();
      EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 16384) << "with the lock and the tables";
    }
    int kept = 0;
    for (int i = 0; i < 40; ++i) {
      const int number = ascending ? i : 39 - i;
      const bool there = !Read(*cache, Of(number), {0, object_.size()}).empty();
      kept += there ? 1 : 0;
      EXPECT_EQ(there, i < kept) << "the first ones to be used stay";
    }
    EXPECT_GE(kept, 8);
    EXPECT_EQ(cache->counts().not_admitted_bytes, ascending ? (40 - static_cast<uint64_t>(kept)) * object_.size() : 0);
  }
}

TEST_F(DiskCacheTest, WhatIsPinnedStays) {
  constexpr uint64_t kBound = 1 << 20;
  const auto cache = Open(kBound);
  const auto entry = cache->Join("store", 9, 1000);
  const auto keep = [&](int number, uint64_t next, bool pinned) {
    PlannedRead plan{.job = 9, .use = 0, .period = 1000, .spans = {{{0, object_.size()}, next}}};
    plan.pinned = pinned;
    cache->Keep(Of(number), object_.size(), 0, AsBytes(object_), &plan);
    cache->Flush();
  };
  const auto is_there = [&](int number) { return !Read(*cache, Of(number), {0, object_.size()}).empty(); };
  for (int i = 0; i < 9; ++i) keep(i, 10, false);
  for (int i = 100; i < 104; ++i) keep(i, 1900, true);
  for (int i = 100; i < 104; ++i) EXPECT_TRUE(is_there(i)) << "it takes the room of others";
  const PlannedRead other{.job = 9, .use = 1, .period = 1000, .spans = {{{0, object_.size()}, 1950}}};
  cache->Touch(Of(100), {0, object_.size()}, &other);
  for (int i = 200; i < 240; ++i) keep(i, 240 - static_cast<uint64_t>(i), false);
  for (int i = 100; i < 104; ++i) EXPECT_TRUE(is_there(i)) << "whoever else reads it";
  EXPECT_TRUE(is_there(239));
  EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 16384);
  // If too much is pinned, what was pinned first stays; and not more than the bound.
  for (int i = 300; i < 320; ++i) keep(i, 1, true);
  for (int i = 100; i < 104; ++i) EXPECT_TRUE(is_there(i));
  EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 16384);
  const auto smaller = Open(kBound / 4);
  smaller->Flush();
  EXPECT_LE(DiskBytesBelow(folder_.path()), kBound / 4 + 16384);
}

// The ranges of a run that is over are removed before what the living one has.
TEST_F(DiskCacheTest, WhatNobodyReadsMakesRoom) {
  constexpr uint64_t kBound = 1 << 20;
  constexpr uint32_t kJob = 9;
  const auto plan = [&](uint32_t job, uint64_t next) {
    return PlannedRead{.job = job, .use = 0, .period = 1000, .spans = {{{0, object_.size()}, next}}};
  };
  {
    const auto cache = Open(kBound);
    const auto entry = cache->Join("store", kJob, 1000);
    const PlannedRead soon = plan(kJob, 1);
    for (int i = 0; i < 9; ++i) cache->Keep(Of(i), object_.size(), 0, AsBytes(object_), &soon);
  }
  const auto cache = Open(kBound);
  const auto entry = cache->Join("another store", kJob + 1, 1000);
  const PlannedRead late = plan(kJob + 1, 900);
  for (int i = 100; i < 104; ++i) cache->Keep(Of(i), object_.size(), 0, AsBytes(object_), &late);
  cache->Flush();
  for (int i = 100; i < 104; ++i) EXPECT_EQ(Read(*cache, Of(i), {0, object_.size()}), object_);
  EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 16384);
}

TEST_F(DiskCacheTest, ASmallerBoundRemovesWhatIsTooMuch) {
  {
    const auto cache = Open();
    for (int i = 0; i < 20; ++i) cache->Keep(Of(i), object_.size(), 0, AsBytes(object_));
  }
  EXPECT_GT(DiskBytesBelow(folder_.path()), uint64_t{19} * 100'000);
  const auto cache = Open(1 << 20);
  cache->Flush();
  EXPECT_LE(DiskBytesBelow(folder_.path()), (uint64_t{1} << 20) + 16384);
  EXPECT_GE(SummarizeCache(folder_.path(), {})->objects, 8u);
}

TEST_F(DiskCacheTest, NothingButItsOwnFilesIsRemoved) {
  constexpr uint64_t kBound = 1 << 20;
  // A part of an object has a file of its own.
  { Open(kBound)->Keep(Of(1), object_.size() + 1, 0, AsBytes(object_)); }
  const std::string own = FilesBelow(folder_.path()).at(0);
  const fs::path root = folder_ / "millrace-cache-1";
  const std::vector<fs::path> foreign = {folder_ / "mine", root / "mine", fs::path(own).parent_path() / "mine",
                                         root / "zz" / std::string(30, 'a')};
  fs::create_directory(root / "zz");
  for (const fs::path& path : foreign) std::ofstream(path) << std::string(900'000, 'm');
  fs::create_symlink(folder_ / "mine", fs::path(own).parent_path() / std::string(30, 'b'));
  const auto cache = Open(kBound);
  const auto entry = cache->Join("store", 7, 1000);
  for (int i = 100; i < 140; ++i) {
    const PlannedRead plan{.job = 7, .use = 0, .period = 1000, .spans = {{{0, object_.size()}, 200 - uint64_t(i)}}};
    cache->Keep(Of(i), object_.size() + 1, 0, AsBytes(object_), &plan);
  }
  cache->Flush();
  EXPECT_FALSE(fs::exists(own)) << "it made room";
  for (const fs::path& path : foreign) EXPECT_EQ(fs::file_size(path), 900'000u) << path;
}

// A file of the cache's name that is none: of another version, or damaged.
TEST_F(DiskCacheTest, FilesThatAreNotSoundMakeRoom) {
  constexpr uint64_t kBound = 1 << 20;
  ASSERT_NE(Open(), nullptr);  // from now on the files are this version's
  fs::create_directories(folder_ / "millrace-cache-1/aa");
  const fs::path old = fs::path(folder_ / "millrace-cache-1/aa") / std::string(30, 'a');
  std::ofstream(old) << std::string(1'000'000, 'x');
  const auto cache = Open(kBound);
  for (int i = 0; i < 9 && fs::exists(old); ++i) {
    cache->Keep(Of(i), object_.size(), 0, AsBytes(object_));
    cache->Flush();
  }
  EXPECT_FALSE(fs::exists(old));
}

// The first program of this version that has the folder alone removes what an older one has left, and says so.
TEST_F(DiskCacheTest, FilesOfOlderVersionsAreDroppedWithAMessage) {
  uint64_t own = 0;
  {
    const auto cache = Open();
    cache->Keep(Of(1), object_.size(), 0, AsBytes(object_));
    cache->Flush();
    own = *cache->disk_bytes();
  }
  // As version 2 had it: a head with a CRC that is right, and a count without a version.
  std::string head = *cache_format::EncodeHead(Of(2), object_.size());
  head[8] = 2;
  const uint32_t crc = Crc32c(AsBytes(head).first(head.size() - 4));
  std::memcpy(head.data() + head.size() - 4, &crc, sizeof crc);
  const fs::path old = fs::path(folder_ / "millrace-cache-1/aa") / std::string(30, 'a');
  fs::create_directories(old.parent_path());
  std::ofstream(old, std::ios::binary) << head << object_;
  const fs::path foreign = old.parent_path() / "notes";
  std::ofstream(foreign) << "mine";
  fs::resize_file(folder_ / "millrace-cache-1/usage", 16);
  for (const bool is_first : {true, false}) {
    testing::internal::CaptureStderr();
    const auto cache = Open();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("removed 1 file of another version") != said.npos, is_first) << said;
    EXPECT_EQ(said.empty(), !is_first) << said;
    EXPECT_FALSE(fs::exists(old));
    EXPECT_TRUE(fs::exists(foreign));
    EXPECT_EQ(Read(*cache, Of(1), {0, object_.size()}), object_) << "of this version";
    EXPECT_EQ(*cache->disk_bytes(), own);
  }
}

// Another process has the cache open: its files stay until they make room.
TEST_F(DiskCacheTest, FilesOfOlderVersionsStayWhileOthersUseThem) {
  const auto other = Open();
  fs::resize_file(folder_ / "millrace-cache-1/usage", 16);
  const fs::path old = fs::path(folder_ / "millrace-cache-1/aa") / std::string(30, 'a');
  fs::create_directories(old.parent_path());
  std::ofstream(old) << std::string(10'000, 'x');
  ASSERT_NE(Open(), nullptr);
  EXPECT_TRUE(fs::exists(old));
}

// Damaged ranges that are removed are not counted any longer.
TEST_F(DiskCacheTest, WhatIsDamagedTakesNoRoom) {
  const auto cache = Open();
  cache->Keep(Of(1), object_.size(), 0, AsBytes(object_));
  cache->Flush();
  const uint64_t before = *cache->disk_bytes();
  {
    std::fstream file(FilesBelow(folder_.path()).at(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 5000);
    file.put(static_cast<char>(object_[5000] ^ 1));
  }
  EXPECT_EQ(Read(*cache, Of(1), {0, object_.size()}), "");
  EXPECT_LE(*cache->disk_bytes(), before - object_.size());
}

TEST_F(DiskCacheTest, AFileThatIsNotSoundTakesNoRoomOnceItIsFound) {
  ASSERT_NE(Open(), nullptr);  // from now on the files are this version's
  const std::string path = folder_ / ("millrace-cache-1/" + cache_format::FileName(Of(1)));
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << std::string(1'000'000, 'x');
  const auto cache = Open();
  EXPECT_GE(*cache->disk_bytes(), 1'000'000u);
  EXPECT_EQ(Read(*cache, Of(1), {0, 100}), "");
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(*cache->disk_bytes(), 0u);
}

// Each read says when its range is used next, whatever was said before: in long runs, that was a little too late.
TEST_F(DiskCacheTest, TheLastReadTellsWhenARangeIsUsedNext) {
  const auto cache = Open();
  PlannedRead plan{.job = 9, .use = 50, .period = 1000, .spans = {{{0, 10'000}, 100, 100}}};
  cache->Keep(Of(1), object_.size(), 0, AsBytes(object_).first(10'000), &plan);
  cache->Flush();
  const auto next_use = [&] { return CacheFile::Open(FilesBelow(folder_.path()).at(0)).value()->All()->at(0).hints; };
  EXPECT_EQ(next_use(), (UseHints{9, 100}));
  plan.use = 90;
  plan.spans = {{{0, 10'000}, 1500, 1500}};
  cache->Touch(Of(1), {0, 10'000}, &plan);
  EXPECT_EQ(next_use(), (UseHints{9, 1500}));
  // A part of it is read.
  plan.use = 1500;
  plan.spans = {{{0, 5000}, 2500, 1600}};
  cache->Touch(Of(1), {0, 5000}, &plan);
  EXPECT_EQ(next_use(), (UseHints{9, 1600})) << "the rest is read before";
  // Others may read it, of whom this read does not know.
  plan.use = 1550;
  plan.shared = true;
  plan.spans = {{{0, 10'000}, 2500, 2500}};
  cache->Touch(Of(1), {0, 10'000}, &plan);
  EXPECT_EQ(next_use(), (UseHints{9, 1600}));
}

}  // namespace
}  // namespace millrace
