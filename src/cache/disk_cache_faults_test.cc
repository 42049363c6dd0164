#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "base/unique_fd.h"
#include "cache/disk_cache.h"
#include "cache/testing/disk_cache_fixture.h"

/// These tests use a cache on a disk whose folder, room or open files are missing, and whose users are killed.

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST_F(DiskCacheTest, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_FALSE(DiskCache::Open({.folder = folder_ / "file"}).ok());
  EXPECT_EQ(DiskCache::OpenOrWarn({.folder = folder_ / "file"}), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(DiskCache::Open({}).status()));
}

TEST_F(DiskCacheTest, AFileSystemWithoutRoomIsLeftAlone) {
  auto cache = DiskCache::Open({.folder = folder_.path(), .free_share = 1.0});
  ASSERT_TRUE(cache.ok());
  (*cache)->Keep(Of(1), object_.size(), 0, AsBytes(object_));
  (*cache)->Flush();
  EXPECT_EQ(FilesBelow(folder_.path()).size(), 0u);
}

TEST_F(DiskCacheTest, ACacheThatIsClearedMeanwhileGoesOn) {
  const auto cache = Open();
  cache->Keep(Of(1), object_.size(), 0, AsBytes(object_));
  cache->Keep(Of(3), object_.size(), 0, AsBytes(object_).first(10'000));
  cache->Flush();
  fs::remove_all(folder_ / "millrace-cache-1");
  EXPECT_EQ(Read(*cache, Of(1), {0, object_.size()}), object_) << "what is open stays until it is closed";
  cache->Keep(Of(2), object_.size(), 0, AsBytes(object_));
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(2), {0, object_.size()}), object_);
  // The count is of what is there now, and one for all.
  cache->Keep(Of(3), object_.size(), 50'000, AsBytes(object_).subspan(50'000, 10'000));
  cache->Flush();
  const auto other = Open();
  EXPECT_EQ(*cache->disk_bytes(), *other->disk_bytes());
  EXPECT_LE(*other->disk_bytes(), DiskBytesBelow(folder_.path()) + 2 * kFileMarginBytes);
  EXPECT_EQ(Read(*other, Of(2), {0, object_.size()}), object_);
  EXPECT_EQ(Read(*other, Of(3), {50'000, 10'000}), object_.substr(50'000, 10'000)) << "in a file that is there";
}

// A job that begins in the new folder is not taken for one that has ended.
TEST_F(DiskCacheTest, JobsKnowOfEachOtherWhenTheFolderWasRemoved) {
  constexpr uint64_t kBound = 1 << 20;
  const auto plan = [&](uint32_t job, uint64_t next) {
    return PlannedRead{.job = job, .use = 0, .period = 1000, .spans = {{{0, object_.size()}, next}}};
  };
  const auto old = Open(kBound);
  const auto of_old = old->Join("another store", 9, 1000);
  old->Flush();
  fs::remove_all(folder_ / "millrace-cache-1");
  const auto late = Open(kBound);
  const auto of_late = late->Join("store", 10, 1000);
  const PlannedRead soon = plan(10, 1);
  late->Keep(Of(1), object_.size(), 0, AsBytes(object_), &soon);
  late->Flush();
  for (int i = 100; i < 140; ++i) {
    const PlannedRead sooner = plan(9, 500 - static_cast<uint64_t>(i));
    const CacheIdentity other{"another store", "key" + std::to_string(i), "etag"};
    old->Keep(other, object_.size(), 0, AsBytes(object_), &sooner);
  }
  old->Flush();
  EXPECT_GT(old->counts().written_bytes, 10 * object_.size());
  EXPECT_EQ(Read(*late, Of(1), {0, object_.size()}), object_) << "it has less than its part";
}

// The program has too many files open: what cannot be looked up is not there, and it passes.
TEST_F(DiskCacheTest, TooManyOpenFilesDoNotEndIt) {
  { Open()->Keep(Of(1), object_.size(), 0, AsBytes(object_)); }
  const auto cache = Open();
  cache->Flush();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = UniqueFd(open("/", O_RDONLY | O_CLOEXEC)).get();
  const rlimit none{static_cast<rlim_t>(free), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string read = Read(*cache, Of(1), {0, object_.size()});
  cache->Keep(Of(2), object_.size(), 0, AsBytes(object_));
  cache->Flush();
  const std::string kept = Read(*cache, Of(2), {0, object_.size()});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(read, "");
  EXPECT_EQ(kept, "");
  EXPECT_TRUE(cache->keeps());
  EXPECT_EQ(Read(*cache, Of(1), {0, object_.size()}), object_);
  cache->Keep(Of(2), object_.size(), 0, AsBytes(object_));
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(2), {0, object_.size()}), object_);
}

// Such as a volume of a scanner: more than may wait for the disk.
TEST_F(DiskCacheTest, RangesOfAnyLengthAreKept) {
  const auto cache = Open();
  std::string large(size_t{70} << 20, 'x');
  for (size_t at = 0; at < large.size(); at += 100'003) large[at] = static_cast<char>(at % 251);
  cache->Keep(Of(1), large.size(), 0, AsBytes(large));
  cache->Flush();
  EXPECT_TRUE(Read(*cache, Of(1), {0, large.size()}) == large);
  EXPECT_EQ(cache->counts().dropped_bytes, 0u);
}

// A range that a killed process has written counts whole, or not at all, and the next one finds the right bytes.
TEST_F(DiskCacheTest, KillsLeaveNoWrongByte) {
  constexpr uint64_t kBound = 4 << 20;
  const auto range_of = [](uint64_t seed, uint64_t size) {
    Rng rng(seed);
    const uint64_t offset = rng.Next() % size;
    return ByteRange{offset, 1 + rng.Next() % std::min<uint64_t>(20'000, size - offset)};
  };
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<pid_t> writers;
    for (uint64_t writer = 0; writer < 2; ++writer) {
      const pid_t pid = fork();
      if (pid == 0) {
        const auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = kBound, .free_share = 0});
        if (!cache.ok()) _exit(1);
        for (uint64_t i = 0;; ++i) {
          const ByteRange range = range_of(round * 1'000'000 + writer * 500'000 + i, object_.size());
          (*cache)->Keep(Of(static_cast<int>(i % 5)), object_.size(), range.offset,
                         AsBytes(object_).subspan(range.offset, range.length));
        }
      }
      writers.push_back(pid);
    }
    // Until something was written in this round, so that the kill hits the work.
    const uint64_t before = DiskBytesBelow(folder_.path());
    for (int i = 0; i < 2000 && DiskBytesBelow(folder_.path()) == before && round == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(Rng(round).Next() % 20'000));
    for (const pid_t pid : writers) {
      kill(pid, SIGKILL);
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFSIGNALED(status));
    }
    const auto cache = Open(kBound);
    EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 16384);
    for (int i = 0; i < 5; ++i) {
      for (uint64_t seed = 0; seed < 200; ++seed) {
        const ByteRange range = range_of(round * 1'000'000 + seed, object_.size());
        const std::string wanted = object_.substr(range.offset, range.length);
        const std::string got = Read(*cache, Of(i), range, {{range, Crc32c(AsBytes(wanted))}});
        EXPECT_TRUE(got.empty() || got == wanted);
        const std::string unchecked = Read(*cache, Of(i), range);
        EXPECT_TRUE(unchecked.empty() || unchecked == wanted);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
