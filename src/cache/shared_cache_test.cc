#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "cache/cached_store.h"
#include "cache/disk_cache.h"
#include "store/blocking.h"
#include "store/testing/scripted_store.h"
#include "store/testing/temp_folder.h"

/// These tests have several users of one folder: processes, jobs, readers of the same range.

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::IsNull;
using ::testing::NotNull;

std::string Noise(size_t size, uint64_t seed) {
  Rng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.Next());
  return text;
}

TEST(FetchClaims, ARangeIsClaimedOnceInAllProcesses) {
  const TempFolder folder;
  const auto one = *FetchClaims::Open(folder.path());
  const auto two = *FetchClaims::Open(folder.path());  // as of another process: the locks are of the open file
  auto claim = one->Take("ab/cd", {0, 10'000});
  ASSERT_THAT(claim, NotNull());
  EXPECT_THAT(one->Take("ab/cd", {5000, 10}), IsNull());
  EXPECT_THAT(two->Take("ab/cd", {5000, 10}), IsNull());
  EXPECT_THAT(two->Take("ab/cd", {10'000, 10'000}), NotNull()) << "the neighbour is another";
  EXPECT_THAT(two->Take("ab/ce", {0, 10'000}), NotNull()) << "and so is another object";
  claim.reset();
  EXPECT_THAT(two->Take("ab/cd", {5000, 10}), NotNull());
}

TEST(FetchClaims, OfADeadProcessIsFree) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto claims = FetchClaims::Open(folder.path());
    const auto claim = (*claims)->Take("ab/cd", {0, 100});
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto claims = *FetchClaims::Open(folder.path());
  EXPECT_THAT(claims->Take("ab/cd", {0, 100}), IsNull());
  kill(pid, SIGKILL);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_THAT(claims->Take("ab/cd", {0, 100}), NotNull());
  close(ready[0]);
  close(ready[1]);
}

TEST(JobTable, TellsTheJobsOfTheLiving) {
  const TempFolder folder;
  const auto jobs = [&] {
    const UniqueFd fd(open(JobTablePath(folder.path()).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    return LiveJobs(fd.get());
  };
  EXPECT_TRUE(jobs().empty());
  const auto one = *JobEntry::Make(JobTablePath(folder.path()), 5, 1000);
  auto two = *JobEntry::Make(JobTablePath(folder.path()), 5, 1000);
  auto other = *JobEntry::Make(JobTablePath(folder.path()), 6, 10);
  one->SetClock(700);
  two->SetClock(300);
  ASSERT_EQ(jobs().size(), 2u);
  EXPECT_EQ(jobs()[0].clock, 300u) << "the reader that is behind counts";
  EXPECT_EQ(jobs()[0].period, 1000u);
  other.reset();
  two.reset();
  ASSERT_EQ(jobs().size(), 1u);
  EXPECT_EQ(jobs()[0].clock, 700u);
  {
    const auto resumed = *JobEntry::Make(JobTablePath(folder.path()), 7, 1000, 4200);
    EXPECT_EQ(jobs().back().clock, 4200u) << "not 0 until it has read something";
    resumed->SetClock(4201);
    EXPECT_EQ(jobs().back().clock, 4201u);
  }
  std::vector<std::unique_ptr<JobEntry>> all;
  while (all.size() + 1 < JobEntry::kMost) all.push_back(*JobEntry::Make(JobTablePath(folder.path()), 9, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(JobEntry::Make(JobTablePath(folder.path()), 9, 1).status()));
}

TEST(FetchClaims, GoOnWhenTheFolderWasRemoved) {
  const TempFolder folder;
  const std::string inside = folder / "cache";
  const auto one = *FetchClaims::Open(inside);
  const auto two = *FetchClaims::Open(inside);
  const auto before = one->Take("ab/cd", {0, 10'000});
  ASSERT_THAT(before, NotNull());
  fs::remove_all(inside);
  const auto late = *FetchClaims::Open(inside);
  auto after = one->Take("ab/ce", {0, 10'000});
  ASSERT_THAT(after, NotNull());
  for (const auto& other : {late.get(), two.get()}) {
    EXPECT_THAT(other->Take("ab/ce", {0, 10'000}), IsNull());
    EXPECT_THAT(other->Take("ab/cd", {0, 10'000}), IsNull()) << "what was claimed before, too";
  }
  after.reset();
  EXPECT_THAT(late->Take("ab/ce", {0, 10'000}), NotNull());
}

TEST(JobTable, GoesOnWhenTheFolderWasRemoved) {
  const TempFolder folder;
  const std::string path = JobTablePath(folder / "cache");
  const auto one = *JobEntry::Make(path, 5, 1000, 100);
  fs::remove_all(folder / "cache");
  const auto other = *JobEntry::Make(path, 6, 1000);
  one->SetClock(700);
  one->SetClock(701);
  const UniqueFd fd(open(path.c_str(), O_RDWR));
  const std::vector<JobClock> jobs = LiveJobs(fd.get());
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].job, 6u);
  EXPECT_EQ(jobs[1].job, 5u);
  EXPECT_EQ(jobs[1].clock, 701u);
}

class SharedCacheTest : public ::testing::Test {
 protected:
  static constexpr size_t kObjectBytes = 200'000;
  static constexpr const char* kKey = "k";
  SharedCacheTest() {
    const auto put = PutBlocking(below_, kKey, AsBytes(object_));
    EXPECT_TRUE(put.ok());
    etag_ = put->etag;
  }
  std::unique_ptr<DiskCache> Open(uint64_t size_bytes = 0, std::chrono::milliseconds lock_patience = kLockPatience) {
    auto cache = DiskCache::Open(
        {.folder = folder_.path(), .size_bytes = size_bytes, .free_share = 0, .lock_patience = lock_patience});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  GetOptions Options(ByteRange range) const {
    GetOptions options;
    options.range = range;
    options.if_match = etag_;
    return options;
  }

  TempFolder folder_;
  const std::string object_ = Noise(kObjectBytes, 1);
  ScriptedStore below_{"shared-cache"};
  std::string etag_;
};

// Several readers ask for one range, in one process and by two caches as in two, while the store is slow to answer.
TEST_F(SharedCacheTest, WhatSeveralReadAtOnceIsFetchedOnce) {
  std::promise<void> asked;
  std::promise<void> go;
  std::shared_future<void> may_go = go.get_future().share();
  std::vector<std::thread> answers;
  std::mutex mutex;
  below_.on_get = [&](const GetOptions&, int times, absl::AnyInvocable<void()> read, GetCallback&) {
    const std::lock_guard lock(mutex);
    if (answers.empty()) asked.set_value();
    (void)times;
    answers.emplace_back([may_go, read = std::move(read)]() mutable {
      may_go.wait();
      read();
    });
  };
  const auto one = Open();
  const auto two = Open();
  {
    CachedStore first(below_, *one);
    CachedStore again(below_, *one);
    CachedStore second(below_, *two);
    std::vector<std::string> into(6, std::string(50'000, '?'));
    std::vector<std::promise<absl::StatusOr<GetResult>>> done(into.size());
    const std::vector<CachedStore*> stores = {&first, &first, &again, &second, &second, &first};
    for (size_t i = 0; i < into.size(); ++i) {
      stores[i]->Get(kKey, AsWritableBytes(into[i]), Options({1000, 50'000}),
                     [&done, i](absl::StatusOr<GetResult> result) { done[i].set_value(std::move(result)); });
    }
    asked.get_future().wait();
    go.set_value();
    for (size_t i = 0; i < into.size(); ++i) {
      const absl::StatusOr<GetResult> result = done[i].get_future().get();
      EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(into[i] == object_.substr(1000, 50'000)) << i;
    }
    EXPECT_EQ(first.report().requests + again.report().requests + second.report().requests, 1u);
  }
  for (std::thread& answer : answers) answer.join();
}

// A reader that waits for another one is not held up by an error of that.
TEST_F(SharedCacheTest, AFailedFetchIsNotWaitedForAgain) {
  const auto cache = Open();
  CachedStore store(below_, *cache);
  below_.on_get = [&](const GetOptions&, int times, absl::AnyInvocable<void()> read, GetCallback& done) {
    if (times > 0) return read();
    std::move(done)(absl::UnavailableError("once"));
  };
  std::string into(1000, '?');
  EXPECT_TRUE(absl::IsUnavailable(GetBlocking(store, kKey, AsWritableBytes(into), Options({0, 1000})).status()));
  EXPECT_TRUE(GetBlocking(store, kKey, AsWritableBytes(into), Options({0, 1000})).ok());
  EXPECT_EQ(into, object_.substr(0, 1000));
}

// Each process learns what the other writes, removes and hints.
TEST_F(SharedCacheTest, UsersOfAFolderSeeEachOthersChanges) {
  const auto one = Open(1 << 20);
  const auto two = Open(1 << 20);
  const CacheIdentity identity{"store", "k", "e"};
  const auto reads = [&](DiskCache& cache, ByteRange range) {
    std::string into(range.length, '?');
    return cache.Read(identity, range, {}, AsWritableBytes(into)).has_value() &&
           into == object_.substr(range.offset, range.length);
  };
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 20; ++i) {
      DiskCache& writer = i % 2 == 0 ? *one : *two;
      DiskCache& reader = i % 2 == 0 ? *two : *one;
      const ByteRange range{i * 10'000, 10'000};
      EXPECT_FALSE(reads(reader, range));
      writer.Keep(identity, object_.size(), range.offset, AsBytes(object_).subspan(range.offset, range.length));
      writer.Flush();
      EXPECT_TRUE(reads(reader, range)) << i;
    }
    const std::string path = one->folder() + "/" + cache_format::FileName(identity);
    const auto file = *CacheFile::Open(path);
    EXPECT_EQ(file->spans(), 20u);
    EXPECT_EQ(fs::file_size(path), cache_format::RecordsAt(object_.size()) + 20 * cache_format::kRecordBytes)
        << "records are used again";
    const std::vector<CachedSpan> all = *file->All();
    for (const CachedSpan& span : all) EXPECT_TRUE(file->Remove(span.range).ok());
    EXPECT_FALSE(reads(*one, {0, 10'000}));
    EXPECT_FALSE(reads(*two, {10'000, 10'000}));
  }
}

// The thread sanitizer knows no threads in children of a process with threads.
#if !defined(__SANITIZE_THREAD__)

// Four processes, of two jobs, write at once to a cache that is too small. The bound holds at each moment, and at the
// end the count is what the files take.
TEST_F(SharedCacheTest, TheBoundHoldsAtEachMoment) {
  constexpr uint64_t kBound = 2 << 20;
  const auto disk_bytes = [&] {
    uint64_t bytes = 0;
    std::error_code error;
    for (fs::recursive_directory_iterator at(folder_.path(), error), end; !error && at != end; at.increment(error)) {
      struct stat info {};
      if (at->path().filename().string().size() == 30 && lstat(at->path().c_str(), &info) == 0)
        bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    }
    return bytes;
  };
  std::vector<pid_t> writers;
  for (uint32_t number = 0; number < 4; ++number) {
    const pid_t pid = fork();
    if (pid == 0) {
      auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = kBound, .free_share = 0});
      if (!cache.ok()) _exit(1);
      const uint32_t job = 10 + number % 2;
      const auto entry = (*cache)->Join("store", job, 10'000);
      Rng rng(number);
      for (uint64_t i = 0; i < 300; ++i) {
        const ByteRange range{rng.Below(10) * 20'000, 20'000};
        const PlannedRead plan{.job = job, .use = i, .period = 10'000, .spans = {{range, i + 1 + rng.Below(10'000)}}};
        const CacheIdentity identity{"store", "key" + std::to_string(rng.Below(30)), "e"};
        (*cache)->Keep(identity, object_.size(), range.offset, AsBytes(object_).subspan(range.offset, range.length),
                       &plan);
        if (i % 16 == 0) (*cache)->Flush();
      }
      cache->reset();
      _exit(0);
    }
    writers.push_back(pid);
  }
  // All of them stand still while the files are looked at: else what moves meanwhile is counted twice.
  uint64_t most = 0;
  while (!writers.empty()) {
    std::erase_if(writers, [](pid_t pid) {
      int status = 0;
      kill(pid, SIGSTOP);
      EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
      if (WIFSTOPPED(status)) return false;
      EXPECT_EQ(status, 0);
      return true;
    });
    most = std::max(most, disk_bytes());
    for (const pid_t pid : writers) kill(pid, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LE(most, kBound);
  EXPECT_GE(most, kBound / 2);
  const auto cache = Open(kBound);
  const uint64_t counted = *cache->disk_bytes();
  uint64_t files = 0;
  ForEachCacheFile(cache->folder(), [&](const std::string&, uint64_t) { ++files; });
  EXPECT_EQ(counted, disk_bytes() + files * kFileMarginBytes) << "alone, it was counted";
}

// Two that find no file for an object at the same time: one makes it, the other one finds it when it is about to.
TEST_F(SharedCacheTest, ARangeIsKeptIfAnotherProcessMakesItsFileMeanwhile) {
  const CacheIdentity identity{"store", "key", "e"};
  uint64_t counted = 0;
  {
    const auto one = Open(0, std::chrono::minutes(5));
    const auto two = Open(0, std::chrono::minutes(5));
    // As long as somebody else has the count of bytes, both stand still after they have looked for the file. (If one of
    // them is so late that it has not, it finds the file afterwards, and what follows holds as well.)
    const UniqueFd usage(open((one->folder() + "/usage").c_str(), O_RDWR | O_CLOEXEC));
    one->Flush();  // opening has done its work
    two->Flush();
    ASSERT_EQ(flock(usage.get(), LOCK_EX), 0);
    one->Keep(identity, object_.size(), 0, AsBytes(object_).subspan(0, 20'000));
    two->Keep(identity, object_.size(), 20'000, AsBytes(object_).subspan(20'000, 20'000));
    std::this_thread::sleep_for(std::chrono::seconds(1));  // nothing shows that they wait: they try again and again
    ASSERT_EQ(flock(usage.get(), LOCK_UN), 0);
    one->Flush();
    two->Flush();
    for (DiskCache* const cache : {one.get(), two.get()}) {
      std::string into(40'000, '?');
      ASSERT_TRUE(cache->Read(identity, {0, into.size()}, {}, AsWritableBytes(into)).has_value());
      EXPECT_EQ(into, object_.substr(0, into.size()));
      EXPECT_EQ(cache->counts().written_bytes, 20'000u);
    }
    counted = *one->disk_bytes();
  }
  const uint64_t taken = *Open(0)->disk_bytes();
  EXPECT_GE(counted, taken);
  EXPECT_LE(counted, taken + 3 * uint64_t{4096}) << "what was taken for a second file was given back";
}

// Two that want the last room of a small cache, over and over: one of them finds it taken when it is about to write.
TEST_F(SharedCacheTest, WhatBecameOfEachRangeIsCounted) {
  constexpr uint64_t kRanges = 1500;
  constexpr uint64_t kLength = 5000;
  std::vector<std::shared_ptr<DiskCache>> caches = {Open(256 << 10), Open(256 << 10)};
  std::vector<std::thread> writers;
  for (uint32_t number = 0; number < 2; ++number) {
    writers.emplace_back([this, number, &cache = *caches[number]] {
      const auto entry = cache.Join("store", 10 + number, 10'000);
      for (uint64_t i = 0; i < kRanges; ++i) {
        // The range that comes is needed sooner than all that is there.
        const PlannedRead plan{.job = 10 + number, .use = 0, .period = 10'000, .spans = {{{0, kLength}, 9000 - i}}};
        const CacheIdentity identity{"store", std::to_string(number) + "-" + std::to_string(i), "e"};
        cache.Keep(identity, kLength, 0, AsBytes(object_).subspan(0, kLength), &plan);
      }
      cache.Flush();
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (const auto& cache : caches) {
    const KeepCounts counts = cache->counts();
    EXPECT_EQ(counts.written_bytes + counts.not_admitted_bytes + counts.dropped_bytes, kRanges * kLength);
    EXPECT_GT(counts.written_bytes, 0u);
  }
}

// A file system refuses to write behind some byte of a file, as a full disk does at some moment. For each such byte,
// nothing wrong is read, then or afterwards.
TEST_F(SharedCacheTest, WritesThatFailAnywhereLeaveNoWrongByte) {
  const std::string object = object_.substr(0, 30'000);
  const CacheIdentity identity{"store", "k", "e"};
  const auto is_right = [&](DiskCache& cache) {
    for (uint64_t at = 0; at < object.size(); at += 5000) {
      std::string into(5000, '?');
      const bool there = cache.Read(identity, {at, 5000}, {}, AsWritableBytes(into)).has_value();
      if (there && into != object.substr(at, 5000)) return false;
    }
    return true;
  };
  std::signal(SIGXFSZ, SIG_IGN);
  const uint64_t size = cache_format::RecordsAt(object.size()) + 6 * cache_format::kRecordBytes;
  for (uint64_t limit = 8; limit <= size + 16; limit += limit < cache_format::ChangesAt(object.size()) ? 1700 : 61) {
    const pid_t pid = fork();
    if (pid == 0) {
      const rlimit bound{limit, limit};
      auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = 0, .free_share = 0});
      if (setrlimit(RLIMIT_FSIZE, &bound) != 0 || !cache.ok()) _exit(1);
      for (uint64_t at = 0; at < object.size(); at += 5000) {
        (*cache)->Keep(identity, object.size(), at, AsBytes(object).subspan(at, 5000));
        (*cache)->Flush();
        if (!is_right(**cache)) _exit(2);
      }
      cache->reset();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "at " << limit;
    EXPECT_TRUE(is_right(*Open())) << "after " << limit;
    fs::remove_all(folder_ / "millrace-cache-1");
  }
}

#endif

}  // namespace
}  // namespace millrace
