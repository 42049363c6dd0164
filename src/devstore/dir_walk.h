#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace millrace {

/// The sorted names in a folder: of regular files, and of folders with a '/' behind them. Bytewise order of these is
/// the order of the keys below. Symbolic links are followed. Empty for a folder that does not exist.
absl::StatusOr<std::vector<std::string>> ReadFolder(const std::string& path);

/// Removes folders that hold no file, including `path` itself. False if something is left.
bool RemoveEmptyFolders(const std::string& path);

/// The results of ReadFolder, kept as long as the folders' times say that nothing changed. Thread-safe. Remembers up to
/// four million names.
class DirCache {
 public:
  using Names = std::shared_ptr<const std::vector<std::string>>;
  absl::StatusOr<Names> Read(const std::string& path);

 private:
  struct Entry {
    uint64_t inode = 0;
    int64_t modified_ns = 0;
    Names names;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  size_t names_ = 0;
};

/// Finds keys, which are the paths of files below one folder, in order. Reads each folder once in its life, so it
/// serves one listing. Not thread-safe.
class DirWalk {
 public:
  DirWalk(DirCache& cache, std::string root) : cache_(cache), root_(std::move(root)) {}

  /// The first key not less than `from`.
  absl::StatusOr<std::optional<std::string>> FirstFrom(std::string_view from);

 private:
  absl::StatusOr<DirCache::Names> NamesOf(const std::string& folder);
  absl::StatusOr<std::optional<std::string>> Search(const std::string& folder, std::string_view from);

  DirCache& cache_;
  const std::string root_;  // without '/' at its end
  std::unordered_map<std::string, DirCache::Names> seen_;
};

}  // namespace millrace
