// These tests check who may use a cache, and how long it waits for others.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cache/cache_tools.h"
#include "cache/disk_cache.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsNull;

constexpr std::chrono::milliseconds kBrief{20};
constexpr std::chrono::hours kForever{24};
constexpr mode_t kAllModes = 07777;

struct stat StatOfPath(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info;
}

class CacheAccessTest : public ::testing::Test {
 protected:
  ~CacheAccessTest() override {
    umask(old_umask_);
    unsetenv("MILLRACE_CACHE_GROUP");
  }

  absl::StatusOr<std::unique_ptr<DiskCache>> Open(std::chrono::milliseconds patience = kForever) {
    return DiskCache::Open({.folder = named_, .free_share = 0, .lock_patience = patience});
  }
  static void Keep(DiskCache& cache, const std::string& key = "key") {
    cache.Keep({"store", key, "etag"}, 5, 0, AsBytes("bytes"));
    cache.Flush();
  }
  static bool Has(DiskCache& cache, const std::string& key = "key") {
    std::string into(5, '?');
    return cache.Read({"store", key, "etag"}, {0, 5}, {}, AsWritableBytes(into)).has_value() && into == "bytes";
  }
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths{named_};
    for (const auto& entry : fs::recursive_directory_iterator(named_)) paths.push_back(entry.path());
    return paths;
  }
  void ExpectModes(mode_t of_folders, mode_t of_files) const {
    EXPECT_EQ(Paths().size(), 8u) << "three folders, a file, lock, usage, jobs and claims";
    for (const std::string& path : Paths()) {
      const struct stat info = StatOfPath(path);
      EXPECT_EQ(info.st_mode & kAllModes, S_ISDIR(info.st_mode) ? of_folders : of_files) << path;
    }
  }

  const mode_t old_umask_ = umask(0);
  const TempFolder folder_;
  const std::string named_ = folder_ / "cache";
  const std::string inside_ = DiskCache::FolderIn(named_);
};

TEST_F(CacheAccessTest, FoldersAndFilesAreOneUsersAlone) {
  Keep(**Open());
  ExpectModes(0700, 0600);
  // As older versions have left them.
  for (const std::string& path : Paths()) ASSERT_EQ(chmod(path.c_str(), fs::is_directory(path) ? 0777 : 0666), 0);
  const auto cache = *Open();
  EXPECT_TRUE(Has(*cache));
  EXPECT_EQ(StatOfPath(inside_).st_mode & kAllModes, 0700u);
  for (const char* name : {"lock", "usage", "jobs", "claims"}) {
    EXPECT_EQ(StatOfPath(inside_ + "/" + name).st_mode & kAllModes, 0600u) << name;
  }
}

TEST_F(CacheAccessTest, AGroupSharesThemIfItIsNamed) {
  umask(077);
  setenv("MILLRACE_CACHE_GROUP", std::to_string(getegid()).c_str(), 1);
  Keep(**Open());
  ExpectModes(02770, 0660);
  for (const std::string& path : Paths()) EXPECT_EQ(StatOfPath(path).st_gid, getegid()) << path;
  unsetenv("MILLRACE_CACHE_GROUP");
  EXPECT_TRUE(Has(**Open())) << "its owner's, with or without the variable";
  EXPECT_EQ(StatOfPath(inside_).st_mode & kAllModes, 02770u);
}

TEST_F(CacheAccessTest, AGroupMustExistAndHaveTheFolder) {
  setenv("MILLRACE_CACHE_GROUP", "no such group", 1);
  EXPECT_THAT(ToStd(Open().status().message()), HasSubstr("no group 'no such group'"));
  unsetenv("MILLRACE_CACHE_GROUP");
  ASSERT_TRUE(Open().ok());
  setenv("MILLRACE_CACHE_GROUP", std::to_string(getegid()).c_str(), 1);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kFailedPrecondition) << "a private one is not opened to others";
}

TEST_F(CacheAccessTest, WhatIsAnotherUsersIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t kAnother = 12345;
  Keep(**Open());
  for (const std::string& path : {inside_, inside_ + "/lock", inside_ + "/usage", inside_ + "/jobs"}) {
    ASSERT_EQ(chown(path.c_str(), kAnother, static_cast<gid_t>(-1)), 0);
    EXPECT_EQ(Open().status().code(), absl::StatusCode::kPermissionDenied) << path;
    ASSERT_EQ(chown(path.c_str(), geteuid(), static_cast<gid_t>(-1)), 0);
  }
  ASSERT_EQ(chown(inside_.c_str(), kAnother, static_cast<gid_t>(-1)), 0);
  EXPECT_EQ(ClearCache(named_, "", {}).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chown(inside_.c_str(), geteuid(), static_cast<gid_t>(-1)), 0);
  for (const std::string& path : Paths()) {
    if (fs::path(path).filename().string().size() != 30) continue;
    ASSERT_EQ(chown(path.c_str(), kAnother, static_cast<gid_t>(-1)), 0);
  }
  EXPECT_FALSE(Has(**Open()));
}

TEST_F(CacheAccessTest, C25OneFileThatCannotBeOpenedEndsNothing) {
  Keep(**Open());
  for (const std::string& path : Paths()) {
    if (fs::path(path).filename().string().size() != 30) continue;
    fs::remove(path);
    fs::create_directory(path);
  }
  const auto cache = *Open();
  Keep(*cache, "new");
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(Has(*cache));
    EXPECT_TRUE(Has(*cache, "new"));
    Keep(*cache);
    EXPECT_TRUE(cache->keeps());
  }
}

TEST_F(CacheAccessTest, LinksAreNotFollowed) {
  ASSERT_TRUE(Open().ok());
  const std::string other = folder_ / "other";
  std::ofstream(other) << "untouched";
  fs::remove(inside_ + "/usage");
  fs::create_symlink(other, inside_ + "/usage");
  EXPECT_FALSE(Open().ok());
  std::ifstream file(other);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "untouched");
}

TEST_F(CacheAccessTest, FoldersWithinTheCacheAreNoLinks) {
  Keep(**Open());
  const std::string elsewhere = folder_ / "elsewhere";
  for (const std::string& path : Paths()) {
    if (fs::path(path).filename().string().size() != 2) continue;
    fs::rename(path, elsewhere);
    fs::create_symlink(elsewhere, path);
  }
  for (const auto& file : fs::directory_iterator(elsewhere)) fs::resize_file(file.path(), 0);
  {
    const auto cache = *Open();
    EXPECT_FALSE(Has(*cache));
    Keep(*cache);
    EXPECT_FALSE(Has(*cache));
  }
  for (const auto& file : fs::directory_iterator(elsewhere)) EXPECT_EQ(fs::file_size(file.path()), 0u) << file.path();
  EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere), fs::directory_iterator()), 1);
}

// The file of the key is not there, so that one is to be made.
TEST_F(CacheAccessTest, C24ALinkToAnEmptyFolderEndsNothing) {
  Keep(**Open());
  const std::string elsewhere = folder_ / "elsewhere";
  fs::create_directory(elsewhere);
  for (const std::string& path : Paths()) {
    if (fs::path(path).filename().string().size() != 2) continue;
    fs::remove_all(path);
    fs::create_symlink(elsewhere, path);
  }
  const auto cache = *Open();
  for (int i = 0; i < 3; ++i) Keep(*cache);
  EXPECT_FALSE(Has(*cache));
  EXPECT_TRUE(cache->keeps());
  Keep(*cache, "new");
  EXPECT_TRUE(Has(*cache, "new"));
  EXPECT_TRUE(fs::is_empty(elsewhere));
}

// Any process of the same user can hold a lock: one that is stopped, or a child that was forked at the wrong moment.
TEST_F(CacheAccessTest, ACacheWhoseLockIsHeldIsNotUsed) {
  Keep(**Open());
  const UniqueFd lock(open((inside_ + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  const auto cache = Open(kBrief);
  EXPECT_EQ(cache.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(ToStd(cache.status().message()), HasSubstr("another process"));
  EXPECT_THAT(DiskCache::OpenOrWarn({.folder = named_, .lock_patience = kBrief}), IsNull());
}

TEST_F(CacheAccessTest, ACountThatWasBrokenOffIsNotTakenForTheSum) {
  Keep(**Open());
  const uint64_t bytes = *(*Open())->disk_bytes();
  EXPECT_GT(bytes, 1u);
  // A process that is killed while it counts leaves this. Another one has got the lock.
  const uint64_t broken_off[] = {1, 1024};
  const UniqueFd usage(open((inside_ + "/usage").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(pwrite(usage.get(), broken_off, sizeof broken_off, 0), static_cast<ssize_t>(sizeof broken_off));
  const UniqueFd lock(open((inside_ + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_SH), 0);
  EXPECT_EQ(Open(kBrief).status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  const auto first = *Open(kBrief);
  const auto second = *Open(kBrief);
  EXPECT_EQ(*second->disk_bytes(), bytes);
}

TEST_F(CacheAccessTest, ACacheWhoseCountIsHeldTakesNothingNew) {
  const auto cache = *Open(kBrief);
  Keep(*cache);
  const UniqueFd usage(open((inside_ + "/usage").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(usage.get(), LOCK_EX), 0);
  Keep(*cache, "new");
  EXPECT_FALSE(cache->keeps());
  EXPECT_TRUE(Has(*cache));
  EXPECT_FALSE(Has(*cache, "new"));
  EXPECT_EQ(cache->disk_bytes().status().code(), absl::StatusCode::kDeadlineExceeded);
  flock(usage.get(), LOCK_UN);
  EXPECT_FALSE(cache->disk_bytes().ok()) << "nobody waits for it again";
}

TEST_F(CacheAccessTest, AFileWhoseRecordsAreHeldIsNotWaitedForForEver) {
  Keep(**Open());
  std::string path;
  for (const std::string& one : Paths()) {
    if (fs::path(one).filename().string().size() == 30) path = one;
  }
  const auto file = *CacheFile::Open(path);
  const UniqueFd other(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  ASSERT_EQ(fcntl(other.get(), F_OFD_SETLK, &lock), 0);
  file->set_patience(kBrief);
  EXPECT_EQ(file->Remove({0, 5}).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(file->Reclaim(), 0u);
  EXPECT_EQ(file->UnlinkIfEmpty(), 0u);
  lock.l_type = F_UNLCK;
  ASSERT_EQ(fcntl(other.get(), F_OFD_SETLK, &lock), 0);
  EXPECT_TRUE(file->Remove({0, 5}).ok());
}

TEST(LockInTime, WaitsAsLongAsTheOtherGetsOn) {
  int calls = 0;
  const auto held = [&] {
    errno = EWOULDBLOCK;
    return ++calls > 12 ? 0 : -1;
  };
  EXPECT_TRUE(LockInTime("x", std::chrono::milliseconds(1), held, [] { return true; }).ok());
  EXPECT_EQ(calls, 13);
  calls = -1'000'000;
  EXPECT_TRUE(absl::IsDeadlineExceeded(LockInTime("x", std::chrono::milliseconds(1), held)));
}

}  // namespace
}  // namespace millrace
