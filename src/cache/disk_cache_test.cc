#include "cache/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string RandomBytes(size_t size, uint64_t seed) {
  Rng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.Next());
  return text;
}

uint64_t DiskBytesBelow(const std::string& folder) {
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    struct stat info {};
    if (entry.is_regular_file() && stat(entry.path().c_str(), &info) == 0)
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename().string().size() == 30) files.push_back(entry.path());
  }
  return files;
}

// As if the files had been used an hour ago: the clock of the file system has ticks of milliseconds, so what was used
// just before a cache is opened may bear the same time as its opening.
void Age(const std::string& folder) {
  for (const std::string& path : FilesBelow(folder))
    fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
}

class DiskCacheTest : public ::testing::Test {
 protected:
  std::shared_ptr<DiskCache> Open(uint64_t size_bytes = 0) {
    auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = size_bytes, .free_share = 0});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  static CacheIdentity Of(int number) { return {"store", "key" + std::to_string(number), "etag"}; }

  // "" if it is not there, or not sound.
  static std::string Read(DiskCache& cache, const CacheIdentity& identity, ByteRange range,
                          const std::vector<SpanChecksum>& checksums = {}) {
    std::string into(range.length, '?');
    const auto size = cache.Read(identity, range, checksums, AsWritableBytes(into));
    return size ? into : "";
  }

  TempFolder folder_;
  const std::string object_ = RandomBytes(100'000, 1);
};

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

TEST_F(DiskCacheTest, PartsAreReadWhereTheCallerCanCheckThem) {
  const auto cache = Open();
  cache->Keep(Of(1), object_.size(), 1000, AsBytes(object_.substr(1000, 5000)));
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(1), {1100, 100}), "") << "nothing tells whether it is sound";
  const std::string part = object_.substr(1100, 100);
  const std::vector<SpanChecksum> checksums = {{{1100, 100}, Crc32c(AsBytes(part))}};
  EXPECT_EQ(Read(*cache, Of(1), {1100, 100}, checksums), part);
}

TEST_F(DiskCacheTest, OverlapsAreWrittenOnce) {
  const auto cache = Open();
  for (const auto& [offset, length] : {std::pair(0, 100), std::pair(50, 100), std::pair(300, 100), std::pair(0, 500)})
    cache->Keep(Of(1), object_.size(), offset, AsBytes(object_).subspan(offset, length));
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(1), {0, 500}), object_.substr(0, 500));
  EXPECT_EQ(fs::file_size(FilesBelow(folder_.path()).at(0)), 4096 + 102'400 + 5 * 32) << "a record of each new part";
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
    // As after a miss.
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

TEST_F(DiskCacheTest, StaysWithinItsBoundAndKeepsWhatIsInUse) {
  constexpr uint64_t kBound = 1 << 20;
  const auto cache = Open(kBound);
  for (int i = 0; i < 40; ++i) {
    cache->Keep(Of(i), object_.size(), 0, AsBytes(object_));
    cache->Flush();
    EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 8192) << "with the lock and the count";
  }
  int kept = 0;
  for (int i = 0; i < 40; ++i) {
    const bool there = !Read(*cache, Of(i), {0, object_.size()}).empty();
    kept += there ? 1 : 0;
    EXPECT_EQ(there, i < kept) << "the first ones stay: removing them for the next would help nobody";
  }
  EXPECT_GE(kept, 8);
}

TEST_F(DiskCacheTest, WhatNobodyUsesMakesRoom) {
  constexpr uint64_t kBound = 1 << 20;
  {
    const auto cache = Open(kBound);
    for (int i = 0; i < 9; ++i) cache->Keep(Of(i), object_.size(), 0, AsBytes(object_));
  }
  Age(folder_.path());
  // Of another user, who lives.
  const auto other = Open(kBound);
  EXPECT_NE(Read(*other, Of(0), {0, object_.size()}), "");
  const auto cache = Open(kBound);
  for (int i = 100; i < 140; ++i) {
    cache->Keep(Of(i), object_.size(), 0, AsBytes(object_));
    cache->Flush();
    EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 8192);
  }
  EXPECT_EQ(Read(*cache, Of(0), {0, object_.size()}), object_) << "it is in use";
  EXPECT_EQ(Read(*cache, Of(1), {0, object_.size()}), "");
  EXPECT_EQ(Read(*cache, Of(100), {0, object_.size()}), object_);
}

TEST_F(DiskCacheTest, NothingButItsOwnFilesIsRemoved) {
  constexpr uint64_t kBound = 1 << 20;
  { Open(kBound)->Keep(Of(1), object_.size(), 0, AsBytes(object_)); }
  Age(folder_.path());
  const std::string own = FilesBelow(folder_.path()).at(0);
  const fs::path root = folder_ / "millrace-cache-1";
  const std::vector<fs::path> foreign = {folder_ / "mine", root / "mine", fs::path(own).parent_path() / "mine",
                                         root / "zz" / std::string(30, 'a')};
  fs::create_directory(root / "zz");
  for (const fs::path& path : foreign) std::ofstream(path) << std::string(900'000, 'm');
  fs::create_symlink(folder_ / "mine", fs::path(own).parent_path() / std::string(30, 'b'));
  const auto cache = Open(kBound);
  for (int i = 100; i < 140; ++i) cache->Keep(Of(i), object_.size(), 0, AsBytes(object_));
  cache->Flush();
  EXPECT_FALSE(fs::exists(own)) << "it made room";
  for (const fs::path& path : foreign) EXPECT_EQ(fs::file_size(path), 900'000u) << path;
}

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
  cache->Flush();
  fs::remove_all(folder_ / "millrace-cache-1");
  EXPECT_EQ(Read(*cache, Of(1), {0, object_.size()}), object_) << "what is open stays until it is closed";
  cache->Keep(Of(2), object_.size(), 0, AsBytes(object_));
  cache->Flush();
  EXPECT_EQ(Read(*cache, Of(2), {0, object_.size()}), object_);
}

// What a process that is killed has written counts whole, or not at all, and the next one finds the right bytes.
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
    EXPECT_LE(DiskBytesBelow(folder_.path()), kBound + 8192);
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
