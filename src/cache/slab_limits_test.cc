#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "cache/cache_format.h"
#include "cache/disk_cache.h"
#include "cache/memory_cache.h"
#include "cache/room_maker.h"
#include "cache/testing/slab_fixture.h"

/// These tests have slabs that cannot take an object: then it lies in a file of its own, and the cache takes others.

namespace millrace {
namespace {

using namespace cache_format;

class SlabLimitsTest : public SlabTest {
 protected:
  // 64 Ki records, whose ranges leave no place. Nobody has the slab open.
  static void Fill(const std::string& slab) {
    std::string records;
    for (uint64_t i = 0; i < kSlabBytes / kSmallBytes; ++i)
      records += EncodeRecord({{i * kSmallBytes, kSmallBytes}, 0, {UseHints::kPinned, 0}, static_cast<uint32_t>(i)});
    const UniqueFd file(open(slab.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(pwrite(file.get(), records.data(), records.size(), static_cast<off_t>(RecordsAt(kSlabBytes))),
              static_cast<ssize_t>(records.size()));
  }
  static bool LimitFiles(uint64_t bytes) {
    std::signal(SIGXFSZ, SIG_DFL);
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    limit.rlim_cur = bytes;
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
  }
};

TEST_F(SlabLimitsTest, AFullSlabDoesNotStopTheCache) {
  {
    const auto cache = Open(32 << 20);
    Keep(*cache, 1, ObjectOf(1, 5000));
  }
  Fill(Files().at(0));
  const auto cache = Open(32 << 20);
  for (uint64_t i = 2; i < 10; ++i) Keep(*cache, i, ObjectOf(i, 5000));
  const std::string large = ObjectOf(10, 2 << 20);
  Keep(*cache, 10, large);
  cache->Flush();
  EXPECT_TRUE(cache->keeps());
  EXPECT_EQ(cache->counts().dropped_bytes, 0u);
  for (uint64_t i = 2; i < 10; ++i) {
    EXPECT_TRUE(cache->Has(Of(i)));
    EXPECT_EQ(Read(*cache, Of(i), {0, 5000}), ObjectOf(i, 5000)) << i;
  }
  EXPECT_EQ(Read(*cache, Of(10), {0, large.size()}), large);
}

// Each that is opened has all its records read.
TEST(RoomMaker, LooksIntoFewSlabsAtATime) {
  uint64_t opened = 0;
  RoomMaker maker({.list =
                       [](CacheFileVisitor each) {
                         for (int i = 0; i < 200; ++i) each(fmt::format("00/{:030x}", i), 100'000);
                       },
                   .open =
                       [&](const std::string&) {
                         ++opened;
                         return std::shared_ptr<CacheFile>();
                       },
                   .opened = [](const std::string&) { return std::shared_ptr<CacheFile>(); },
                   .knows = [](const std::string&) { return false; },
                   .forget = [](const std::string&, const std::shared_ptr<CacheFile>&) {},
                   .give_back = [](uint64_t) {},
                   .failed = [](const absl::Status&) {}});
  RoomMaker::Incoming incoming{"ff/0", 0, {UseHints::kPinned, 0}};
  EXPECT_FALSE(maker.MakeRoom(4096, incoming, 1 << 20, {}));
  EXPECT_LE(opened, 4u);
}

// The thread sanitizer knows no threads in children of a process with threads.
#if !defined(__SANITIZE_THREAD__)

// The records of a slab lie behind its places. Writing there would end a process that does not ignore SIGXFSZ.
TEST_F(SlabLimitsTest, ALimitOfTheFileSizeDoesNotStopTheCache) {
  for (const bool of_others : {false, true}) {
    if (of_others) Keep(*Open(32 << 20), 1, ObjectOf(1, 5000));
    const pid_t pid = fork();
    if (pid == 0) {
      if (!LimitFiles(uint64_t{1} << 30)) _exit(1);
      const auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = 1 << 20, .free_share = 0});
      if (!cache.ok()) _exit(2);
      if (of_others && Read(**cache, Of(1), {0, 5000}) != ObjectOf(1, 5000)) _exit(3);
      if (of_others) (*cache)->Touch(Of(1), {0, 5000}, nullptr);
      for (uint64_t i = 2; i < 10; ++i) Keep(**cache, i, ObjectOf(i, 5000));
      (*cache)->Flush();
      if (!(*cache)->keeps()) _exit(4);
      for (uint64_t i = 2; i < 10; ++i) {
        if (Read(**cache, Of(i), {0, 5000}) != ObjectOf(i, 5000)) _exit(5);
      }
      // Others make room, and what lies in the slab of another process stays whole.
      for (uint64_t i = 10; i < 400; ++i) Keep(**cache, i, ObjectOf(i, 5000));
      (*cache)->Flush();
      if (!(*cache)->keeps()) _exit(6);
      if (of_others && Read(**cache, Of(1), {0, 5000}) != ObjectOf(1, 5000)) _exit(7);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "at " << WEXITSTATUS(status) << ", of others: " << of_others;
    std::filesystem::remove_all(folder_ / "millrace-cache-1");
  }
}

TEST_F(SlabLimitsTest, NorThatOfACacheInMemory) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (!LimitFiles(uint64_t{1} << 30)) _exit(1);
    MemoryBudget budget(64 << 20);
    const auto cache = MemoryCache::Open(budget, 8 << 20);
    if (!cache.ok()) _exit(2);
    for (uint64_t i = 0; i < 10; ++i) {
      const CacheIdentity identity = Of(i, std::to_string(i));  // each in a slab of its tenant
      const std::string object = ObjectOf(i, 5000);
      (*cache)->Keep(identity, object.size(), 0, AsBytes(object));
      (*cache)->Flush();
      if (Read(**cache, identity, {0, 5000}) != object) _exit(3);
    }
    _exit((*cache)->keeps() ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "at " << WEXITSTATUS(status);
}

#endif

}  // namespace
}  // namespace millrace
