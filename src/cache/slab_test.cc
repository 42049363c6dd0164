#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "base/testing/test_all.h"
#include "cache/cache_tools.h"
#include "cache/disk_cache.h"
#include "cache/memory_cache.h"
#include "cache/testing/slab_fixture.h"

/// These tests keep whole small objects, which lie in slabs.

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST_F(SlabTest, SmallObjectsLieTogether) {
  for (int round = 0; round < 2; ++round) {
    const auto cache = Open(32 << 20);
    for (uint64_t i = 0; i < 100 && round == 0; ++i) Keep(*cache, i, ObjectOf(i));
    cache->Flush();
    for (uint64_t i = 0; i < 100; ++i) {
      const std::string object = ObjectOf(i);
      EXPECT_EQ(Read(*cache, Of(i), {0, object.size()}), object) << i;
      EXPECT_EQ(Read(*cache, Of(i), {object.size() / 2, object.size() / 4}),
                object.substr(object.size() / 2, object.size() / 4));
      EXPECT_EQ(Read(*cache, Of(i), {0, object.size() + 1}), "") << "longer than the object";
      EXPECT_TRUE(cache->Has(Of(i)));
    }
    EXPECT_EQ(Read(*cache, Of(1, "another"), {0, 1}), "") << "of another tenant";
    EXPECT_EQ(Read(*cache, Of(100), {0, 1}), "");
    EXPECT_EQ(Files().size(), 1u);
  }
}

TEST_F(SlabTest, OfOneSizeTakeHardlyMoreThanTheirBytes) {
  constexpr uint64_t kLength = 40'000;
  const auto cache = Open(32 << 20);
  for (uint64_t i = 0; i < 500; ++i) Keep(*cache, i, ObjectOf(i, kLength));
  cache->Flush();
  EXPECT_LE(static_cast<double>(DiskBytes()), 1.01 * 500 * kLength);
}

// Another process gives the place of an object to one of the same size. Neither is taken for the other, and the new one
// is not taken for a damaged old one.
TEST_F(SlabTest, APlaceThatIsAnothersByNowIsNotRead) {
  const auto one = Open(32 << 20);
  const auto two = Open(32 << 20);
  const std::string first = ObjectOf(1, 5000);
  const std::string second = ObjectOf(2, 5000);
  Keep(*one, 1, first);
  one->Flush();
  ASSERT_EQ(Read(*two, Of(1), {0, 5000}), first);
  {
    const auto slab = *CacheFile::Open(Files().at(0));
    ASSERT_TRUE(slab->Remove(slab->All()->at(0).range).ok());
  }
  Keep(*one, 2, second);
  one->Flush();
  EXPECT_EQ(CacheFile::Open(Files().at(0)).value()->All()->at(0).range.offset, 0u) << "in the same place";
  EXPECT_EQ(Read(*two, Of(1), {0, 5000}), "");
  EXPECT_EQ(Read(*two, Of(2), {0, 5000}), second);
  EXPECT_EQ(Read(*one, Of(2), {0, 5000}), second) << "it was not removed";
}

TEST_F(SlabTest, WhatIsDamagedIsFoundAndRemoved) {
  const auto cache = Open(32 << 20);
  for (uint64_t i = 0; i < 3; ++i) Keep(*cache, i, ObjectOf(i, 5000));
  cache->Flush();
  std::fstream file(Files().at(0), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 5000 + 1000);
  file.put('?').put('!');
  file.close();
  EXPECT_EQ(Read(*cache, Of(0), {0, 5000}), ObjectOf(0, 5000));
  EXPECT_EQ(Read(*cache, Of(1), {4000, 10}), "") << "the object is checked whole";
  EXPECT_EQ(Read(*cache, Of(2), {0, 5000}), ObjectOf(2, 5000));
  EXPECT_FALSE(cache->Has(Of(1)));
  Keep(*cache, 1, ObjectOf(1, 5000));
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(1), {0, 5000}), ObjectOf(1, 5000));
}

TEST_F(SlabTest, OthersLieInFiles) {
  const auto cache = Open(32 << 20);
  const std::string object = ObjectOf(1, 5000);
  cache->Keep(Of(1), object.size(), 0, AsBytes(object).first(3000));
  cache->Flush();
  // An object that has a file stays there.
  Keep(*cache, 1, object);
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(1), {0, 5000}), object);
  const std::string large = ObjectOf(2, 1 << 20);
  Keep(*cache, 2, large);
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(2), {0, large.size()}), large);
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(SlabTest, ToolsKnowWhoseTheyAre) {
  {
    const auto cache = Open();
    for (uint64_t i = 0; i < 20; ++i) Keep(*cache, i, ObjectOf(i, 5000));
  }
  std::vector<std::string> uris;
  const absl::Status listed = ForEachCachedObject(folder_.path(), {}, [&](const CachedObject& object) {
    uris.push_back(object.uri());
    EXPECT_EQ(object.object_bytes, 5000u);
    EXPECT_EQ(object.cached_bytes, 5000u);
    return absl::OkStatus();
  });
  ASSERT_TRUE(listed.ok()) << listed;
  EXPECT_EQ(uris.size(), 20u);
  EXPECT_THAT(uris, ::testing::Contains("s3://bucket/photos/0000007.jpg"));
  EXPECT_EQ(SummarizeCache(folder_.path(), {})->objects, 20u);
  EXPECT_EQ(VerifyCache(folder_.path(), {})->objects, 20u);
  EXPECT_EQ(ClearCache(folder_.path(), "s3://bucket/photos/000000", {})->objects, 10u);
  EXPECT_EQ(SummarizeCache(folder_.path(), {})->objects, 10u);
  EXPECT_EQ(ClearCache(folder_.path(), "", {})->objects, 10u);
  EXPECT_TRUE(Files().empty());
}

// `cache verify` while another process gives the place of an object to one of the same size.
TEST_F(SlabTest, APlaceThatIsAnothersByNowIsNotDamaged) {
  const auto cache = Open(32 << 20);
  Keep(*cache, 1, ObjectOf(1, 5000));
  cache->Flush();
  const auto slab = *CacheFile::Open(Files().at(0));
  const CachedSpan first = slab->All()->at(0);
  std::string bytes(first.range.length, '?');
  EXPECT_TRUE(slab->CheckSmall(first, AsWritableBytes(bytes), nullptr).ok());
  ASSERT_TRUE(CacheFile::Open(Files().at(0)).value()->Remove(first.range).ok());
  EXPECT_TRUE(absl::IsNotFound(slab->CheckSmall(first, AsWritableBytes(bytes), nullptr)));
  Keep(*cache, 2, ObjectOf(2, 5000));
  cache->Flush();
  ASSERT_EQ(slab->All()->at(0).range, first.range);
  EXPECT_TRUE(absl::IsNotFound(slab->CheckSmall(first, AsWritableBytes(bytes), nullptr)));
  EXPECT_EQ(Read(*cache, Of(2), {0, 5000}), ObjectOf(2, 5000)) << "it was not removed";
}

TEST_F(SlabTest, VerifyRemovesWhatIsDamaged) {
  const auto cache = Open(32 << 20);
  for (uint64_t i = 0; i < 3; ++i) Keep(*cache, i, ObjectOf(i, 5000));
  cache->Flush();
  std::fstream(Files().at(0), std::ios::in | std::ios::out | std::ios::binary).seekp(4096 + 1000).put('?').put('!');
  absl::StatusOr<CacheCheck> check = VerifyCache(folder_.path(), {});
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->ranges, 3u);
  EXPECT_EQ(check->damaged_ranges, 1u);
  check = VerifyCache(folder_.path(), {});
  EXPECT_EQ(check->ranges, 2u);
  EXPECT_EQ(check->damaged_ranges, 0u);
}

TEST_F(SlabTest, ClearRemovesWhatSaysNoMoreWhoseItIs) {
  {
    const auto cache = Open(32 << 20);
    Keep(*cache, 1, ObjectOf(1, 5000));
  }
  std::fstream(Files().at(0), std::ios::in | std::ios::out | std::ios::binary).seekp(4096).write("\xff\xff\xff\xff", 4);
  EXPECT_EQ(ClearCache(folder_.path(), "", {})->objects, 1u);
  EXPECT_TRUE(Files().empty());
}

// A process that is alone counts again.
TEST_F(SlabTest, FreeRecordsAreNotCountedAsObjects) {
  uint64_t before = 0;
  {
    const auto cache = Open(32 << 20);
    for (uint64_t i = 0; i < 2000; ++i) Keep(*cache, i, ObjectOf(i, 100));
    Keep(*cache, 5'000'000, ObjectOf(5, 100));
    cache->Flush();
    EXPECT_EQ(ClearCache(folder_.path(), "s3://bucket/photos/0", {})->objects, 2000u);
    before = *cache->disk_bytes();
  }
  EXPECT_LE(*Open(32 << 20)->disk_bytes(), before + 4096);
}

TEST_F(SlabTest, ACacheThatBecameSmallerShrinks) {
  {
    const auto cache = Open(32 << 20);
    for (uint64_t i = 0; i < 2000; ++i) Keep(*cache, i, ObjectOf(i, 3000));
  }
  const auto cache = Open(1 << 20);
  cache->Flush();
  EXPECT_LE(DiskBytes(), (uint64_t{1} << 20) + 16384);
  EXPECT_GE(SummarizeCache(folder_.path(), {})->objects, 150u);
}

// The objects in the slabs of the smaller one make room in time.
TEST_F(SlabTest, ACacheThatBecameLargerHasMoreSlabs) {
  constexpr uint64_t kObjects = 100;
  const auto keep_all = [](DiskCache& cache) {
    for (uint64_t i = 0; i < kObjects; ++i) Keep(cache, i, ObjectOf(i, 5000));
    cache.Flush();
  };
  keep_all(*Open(64 << 20));
  EXPECT_EQ(Files().size(), 1u);
  {
    const auto small = Open(64 << 20);
    const auto large = Open(512 << 20);
    keep_all(*large);
    EXPECT_EQ(Files().size(), 1u) << "another process uses them";
  }
  for (const uint64_t size : {512 << 20, 64 << 20}) {
    const auto cache = Open(size);
    keep_all(*cache);
    EXPECT_EQ(Files().size(), 1u + 8u);
    for (uint64_t i = 0; i < kObjects; ++i) EXPECT_EQ(Read(*cache, Of(i), {0, 5000}), ObjectOf(i, 5000));
  }
}

TEST_F(SlabTest, InMemoryToo) {
  MemoryBudget budget(64 << 20);
  const auto cache = *MemoryCache::Open(budget, 8 << 20);
  for (uint64_t i = 0; i < 1500; ++i) Keep(*cache, i, ObjectOf(i, 5000));
  cache->Flush();
  uint64_t there = 0;
  for (uint64_t i = 0; i < 1500; ++i) {
    const std::string got = Read(*cache, Of(i), {0, 5000});
    EXPECT_TRUE(got.empty() || got == ObjectOf(i, 5000));
    there += got.empty() ? 0 : 1;
  }
  EXPECT_GE(there, 1400u);
}

// The thread sanitizer knows no threads in children of a process with threads.
#if !defined(__SANITIZE_THREAD__)

// Two processes write and remove, and are killed; a third one reads all the time, and is right.
TEST_F(SlabTest, KillsLeaveNoWrongByte) {
  constexpr uint64_t kBound = 1 << 20;
  constexpr uint64_t kObjects = 60;
  const auto reader = Open(kBound);
  uint64_t found = 0;
  const auto check = [&] {
    for (uint64_t i = 0; i < kObjects; ++i) {
      const std::string object = ObjectOf(i);
      const std::string got = Read(*reader, Of(i), {0, object.size()});
      ASSERT_TRUE(got.empty() || got == object) << i;
      found += got.empty() ? 0 : 1;
    }
  };
  for (uint64_t round = 0; round < (TestAll() ? 500 : 20); ++round) {
    std::vector<pid_t> writers;
    for (uint64_t writer = 0; writer < 2; ++writer) {
      const pid_t pid = fork();
      if (pid == 0) {
        const auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = kBound, .free_share = 0});
        if (!cache.ok()) _exit(1);
        const auto entry = (*cache)->Join("https://store s3://bucket/", 7, kObjects);
        Rng rng(2 * round + writer);
        for (;;) {
          const uint64_t number = rng.Below(kObjects);
          const std::string object = ObjectOf(number);
          const PlannedRead plan{
              .job = 7, .use = 0, .period = kObjects, .spans = {{{0, object.size()}, rng.Below(kObjects)}}};
          Keep(**cache, number, object, &plan);
        }
      }
      writers.push_back(pid);
    }
    check();
    std::this_thread::sleep_for(std::chrono::microseconds(Rng(round).Next() % 20'000));
    for (const pid_t pid : writers) {
      kill(pid, SIGKILL);
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFSIGNALED(status));
    }
    check();
    EXPECT_LE(DiskBytes(), kBound + 16384);
  }
  EXPECT_GT(found, 0u);
  EXPECT_EQ(VerifyCache(folder_.path(), {})->unsound_files, 0u);
}

#endif

}  // namespace
}  // namespace millrace
