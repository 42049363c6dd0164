#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Returns the sorted names in a folder: of regular files, and of folders with a '/' at the end. Bytewise order of
/// these is the order of the keys below. Symbolic links are followed. The result is empty for a folder that does not
/// exist. For links that a client can reach there is DirCache.
absl::StatusOr<std::vector<std::string>> ReadFolder(const std::string& path);

/// Removes folders that hold no file, including `path` itself. False if something is left.
bool RemoveEmptyFolders(const std::string& path);

/// Keeps the results of ReadFolder, without links that lead out of a served folder, as long as the folders' times say
/// that nothing changed. Thread-safe. Remembers up to four million names.
class DirCache {
 public:
  using Names = std::shared_ptr<const std::vector<std::string>>;
  /// `root` is the served folder, a path by RealPathOf. The first link that leads out of it is logged.
  explicit DirCache(std::string root) : root_(std::move(root)) {}
  /// All walks fail from now on, also those in progress.
  void Stop() { stopped_ = true; }
  /// Returns an error after Stop.
  absl::Status CheckRunning() const;
  absl::StatusOr<Names> Read(const std::string& path);

 private:
  struct Entry {
    uint64_t inode = 0;
    int64_t changed_ns = 0;
    Names names;
  };
  bool Serves(int dir_fd, const char* name, const std::string& folder);

  const std::string root_;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> warned_ = false;
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  size_t names_ = 0;
};

/// Finds keys, which are the paths of files below one folder, in order. Reads each folder once in its life, so it
/// serves one listing. Links that form circles make endless many keys; only Stop ends their search. Not thread-safe.
class DirWalk {
 public:
  DirWalk(DirCache& cache, std::string root) : cache_(cache), root_(std::move(root)) {}

  /// Returns the first key not less than `from`.
  absl::StatusOr<std::optional<std::string>> FirstFrom(std::string_view from);

 private:
  absl::StatusOr<DirCache::Names> NamesOf(const std::string& folder);
  absl::StatusOr<std::optional<std::string>> Search(const std::string& folder, std::string_view from);

  DirCache& cache_;
  const std::string root_;  // without '/' at its end
  std::unordered_map<std::string, DirCache::Names> seen_;
};

}  // namespace millrace
