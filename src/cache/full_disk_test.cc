#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/rng.h"
#include "cache/disk_cache.h"
#include "store/testing/temp_folder.h"

/// A disk of so many pages, for each number up to what the cache would take: so each of its writes is once the first
/// one that fails.

// The thread sanitizer knows no threads in children of a process with threads.
#if !defined(__SANITIZE_THREAD__)

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPieceSize = 5000;
constexpr uint64_t kManyPages = 256;

// A child process ends with one of these findings; else with the number of the check that failed.
enum Found : int { kAllFits = 100, kWritingEnded = 101, kCouldNotOpen = 102 };

/// Makes a disk that nobody else sees, in a child process. If this machine lets nobody mount one, no file grows beyond
/// so many pages instead. That fails the same writes of the files with objects, and none of `usage` and `jobs`, which
/// are small.
class TinyDisk {
 public:
  TinyDisk(const std::string& folder, uint64_t pages) : folder_(folder) {
    std::signal(SIGXFSZ, SIG_IGN);
    mounted_ = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               mount("tmpfs", folder.c_str(), "tmpfs", 0, Size(pages).c_str()) == 0;
    is_tiny_ = mounted_ || Limit(pages);
  }
  bool is_tiny() const { return is_tiny_; }
  bool mounted() const { return mounted_; }
  bool Grow(uint64_t pages) const {
    if (mounted_) return mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT, Size(pages).c_str()) == 0;
    return Limit(pages);
  }

 private:
  static std::string Size(uint64_t pages) { return fmt::format("size={}k", pages * kPageBytes / 1024); }
  static bool Limit(uint64_t pages) {
    rlimit bound{};
    if (getrlimit(RLIMIT_FSIZE, &bound) != 0) return false;
    bound.rlim_cur = pages * kPageBytes;  // the hard limit stays: not everybody may raise it
    return setrlimit(RLIMIT_FSIZE, &bound) == 0;
  }
  const std::string folder_;
  bool mounted_ = false;
  bool is_tiny_ = false;
};

// Pieces of two objects lie in files, and whole objects in a slab.
enum class Kept { kPieces, kWholeObjects };

class FullDiskTest : public ::testing::TestWithParam<Kept> {
 protected:
  FullDiskTest() {
    Rng rng(23);
    for (char& c : object_) c = static_cast<char>(rng.Next());
  }

  // Nothing is kept free, so that the disk says itself when it is full.
  absl::StatusOr<std::unique_ptr<DiskCache>> Open() const {
    return DiskCache::Open({.folder = folder_.path(), .size_bytes = 0, .free_share = -100});
  }
  struct Piece {
    CacheIdentity identity;
    uint64_t object_bytes = 0;
    uint64_t offset = 0;
    std::string bytes;
  };
  std::vector<Piece> Pieces() const {
    std::vector<Piece> all;
    for (int number = 0; number < 2; ++number) {
      for (uint64_t at = 0; at < object_.size(); at += kPieceSize) {
        const std::string bytes = object_.substr(at, kPieceSize);
        if (GetParam() == Kept::kPieces) {
          all.push_back({{"store", fmt::format("key{}", number), "etag"}, object_.size(), at, bytes});
        } else {
          all.push_back({{"store", fmt::format("key{}/{}", number, at), "etag"}, kPieceSize, 0, bytes});
        }
      }
    }
    return all;
  }

  void KeepAll(DiskCache& cache) const {
    for (const Piece& piece : Pieces()) {
      cache.Keep(piece.identity, piece.object_bytes, piece.offset, AsBytes(piece.bytes));
      cache.Flush();
    }
  }
  // Pieces that are there; -1: one of them is wrong.
  int CountPieces(DiskCache& cache) const {
    int there = 0;
    for (const Piece& piece : Pieces()) {
      std::string into(kPieceSize, '?');
      if (!cache.Read(piece.identity, {piece.offset, kPieceSize}, {}, AsWritableBytes(into))) continue;
      if (into != piece.bytes) return -1;
      ++there;
    }
    return there;
  }
  int pieces() const { return static_cast<int>(2 * object_.size() / kPieceSize); }

  /// Counts the files of the cache, and says whether a file lies there that is being written.
  struct OnDisk {
    uint64_t files = 0;
    uint64_t bytes = 0;
    bool temporary = false;
  };
  OnDisk LookAtDisk() const {
    OnDisk found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_.path())) {
      struct stat info {};
      const std::string name = entry.path().filename();
      if (IsTemporaryName(name)) found.temporary = true;
      if (name.size() != 30 || stat(entry.path().c_str(), &info) != 0) continue;
      ++found.files;
      found.bytes += static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes;
    }
    return found;
  }

  // Runs in a child process.
  int Run(uint64_t pages) const {
    const TinyDisk disk(folder_.path(), pages);
    if (!disk.is_tiny()) return 10;
    int found = kCouldNotOpen;
    if (auto cache = Open(); cache.ok()) {
      KeepAll(**cache);
      const int there = CountPieces(**cache);
      if (there < 0) return 1;
      found = (*cache)->keeps() ? kAllFits : kWritingEnded;
      if ((found == kAllFits) != (there == pieces())) return 2;
      // Room that was taken for what could not be written is given back.
      const OnDisk now = LookAtDisk();
      const absl::StatusOr<uint64_t> counted = (*cache)->disk_bytes();
      if (!counted.ok()) return 11;
      // Other file systems may take more or less for a file, and later.
      const bool right = *counted >= now.bytes && *counted <= now.bytes + now.files * 3 * kPageBytes;
      if (disk.mounted() && !right) return 3;
      if (now.temporary) return 4;
    } else if (!absl::IsResourceExhausted(cache.status())) {
      return 5;
    }
    // Once there is room again, the next process continues with what is there.
    if (!disk.Grow(kManyPages)) return 6;
    const auto again = Open();
    if (!again.ok()) return 7;
    if (CountPieces(**again) < 0) return 8;
    KeepAll(**again);
    return CountPieces(**again) == pieces() ? found : 9;
  }

  TempFolder folder_;
  std::string object_ = std::string(30'000, '\0');
};

TEST_P(FullDiskTest, EachWriteFailsOnceAndNothingWrongIsReadOrLeft) {
  std::map<int, int> found;
  for (uint64_t pages = 1; pages <= 40; ++pages) {
    const pid_t pid = fork();
    if (pid == 0) _exit(Run(pages));
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_GE(WEXITSTATUS(status), kAllFits) << "check of that number, with " << pages << " pages";
    ++found[WEXITSTATUS(status)];
    fs::remove_all(folder_ / "millrace-cache-1");  // where it could not be mounted
  }
  EXPECT_GE(found[kWritingEnded], 8);
  EXPECT_GE(found[kAllFits], 5) << "there were enough pages";
}

INSTANTIATE_TEST_SUITE_P(Of, FullDiskTest, ::testing::Values(Kept::kPieces, Kept::kWholeObjects),
                         [](const auto& kept) { return kept.param == Kept::kPieces ? "Pieces" : "WholeObjects"; });

}  // namespace
}  // namespace millrace

#endif
