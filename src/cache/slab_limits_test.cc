#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "cache/cache_format.h"
#include "cache/disk_cache.h"
#include "cache/memory_cache.h"
#include "cache/open_files.h"
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

/// Makes room among the files of a folder as a cache does, and counts what it opens.
class CountedRoom {
 public:
  CountedRoom(std::string folder, size_t most_foreign_spans)
      : folder_(std::move(folder)),
        files_({OpenFiles::Bound{}, OpenFiles::Bound{}, OpenFiles::Bound{64, most_foreign_spans}}),
        maker_({.list = [this](CacheFileVisitor each) { ForEachCacheFile(folder_, each); },
                .open = [this](const std::string& name) { return Open(name); },
                .opened = [this](const std::string& name) { return files_.Peek(name); },
                .knows = [](const std::string&) { return false; },
                .forget = [this](const std::string& name,
                                 const std::shared_ptr<CacheFile>& file) { files_.Forget(name, file); },
                .give_back = [](uint64_t) {},
                .failed = [](const absl::Status& status) { FAIL() << status; }},
               most_foreign_spans) {}
  RoomMaker& maker() { return maker_; }
  std::shared_ptr<CacheFile> Open(const std::string& name, bool is_wanted = false) {
    if (std::shared_ptr<CacheFile> there = files_.Find(name, is_wanted)) return there;
    absl::StatusOr<std::unique_ptr<CacheFile>> opened = CacheFile::Open(folder_ + "/" + name);
    if (!opened.ok()) return nullptr;
    std::shared_ptr<CacheFile> file = *std::move(opened);
    spans_read_ += file->spans();
    slabs_opened_.insert(name);
    files_.Add(name, file, is_wanted);
    return file;
  }
  uint64_t spans_read() const { return spans_read_; }
  size_t slabs_opened() const { return slabs_opened_.size(); }

 private:
  const std::string folder_;
  OpenFiles files_;
  uint64_t spans_read_ = 0;
  std::set<std::string> slabs_opened_;
  RoomMaker maker_;
};

// Those of others have four times as many ranges as may be in memory. Room is found in those that are open.
TEST_F(SlabLimitsTest, SlabsOfOthersAreOpenedInTurn) {
  constexpr uint64_t kOfEach = 1000;
  constexpr uint64_t kAsks = 1000;
  const std::string own = SmallObject::Of(Of(0, "own"), 0)->slab_name;
  {
    const auto cache = Open(64 << 20);
    for (const std::string tenant : {"a", "b", "c", "d", "own"}) {
      for (uint64_t i = 0; i < (tenant == "own" ? 300 : kOfEach); ++i)
        cache->Keep(Of(i, tenant), 5000, 0, AsBytes(std::string(5000, 'x')));
      cache->Flush();
    }
  }
  ASSERT_EQ(Files().size(), 5u);
  const std::vector<JobClock> unplanned{{UseHints::kUnplanned, 0, UseHints::kNever}};
  // They belong to nobody, or nearly all that comes is turned away.
  for (const bool is_free : {false, true}) {
    SCOPED_TRACE(is_free);
    CountedRoom room(DiskCache::FolderIn(folder_.path()), kOfEach + 100);
    ASSERT_NE(room.Open(own, /*is_wanted=*/true), nullptr);
    uint64_t found = 0;
    for (uint64_t i = 0; i < kAsks; ++i) {
      RoomMaker::Incoming incoming{.name = own, .offset = i, .hints = {UseHints::kUnplanned, 0}, .place_bytes = 5000};
      if (room.maker().MakeRoom(4096, incoming, 20 << 20, is_free ? std::vector<JobClock>() : unplanned)) ++found;
    }
    EXPECT_GE(found, is_free ? kAsks : 0);
    EXPECT_LE(room.spans_read(), 150 * kAsks);
    EXPECT_EQ(room.slabs_opened(), 5u) << "none is forgotten";
  }
}

// Slabs that close each other would be read again and again.
TEST_F(SlabLimitsTest, APartOfTheFilesThatMayBeOpen) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    const auto cache = Open(uint64_t{4} << 30);
    for (uint64_t i = 0; i < 300; ++i) Keep(*cache, i, ObjectOf(i, 100));
    cache->Flush();
    EXPECT_LE(Files().size(), 32u);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
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
