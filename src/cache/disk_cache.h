#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cache/range_cache.h"

namespace millrace {

/// Keeps ranges of objects on a local disk, in `FOLDER/millrace-cache-1`; nothing outside of that is touched. Several
/// processes may use one folder at a time, and share what is there and the bound.
///
/// A disk that is full, read-only or failing ends writing, or reading and writing, with one warning. So do files of
/// another user, and a process that keeps others waiting for a lock. Thread-safe.
class DiskCache final : public RangeCache {
 public:
  /// Makes the folder if it does not exist. Returns the system's error if the folder cannot be made or written to.
  static absl::StatusOr<std::unique_ptr<DiskCache>> Open(RangeCacheOptions options);
  /// Does the same; but if the cache cannot be opened, logs a warning that names it and returns null.
  static std::unique_ptr<DiskCache> OpenOrWarn(RangeCacheOptions options);
  ~DiskCache() override { Stop(); }

  const std::string& folder() const { return folder_; }
  uint64_t capacity_bytes() override;

  /// Returns the folder of a cache in a folder that users name.
  static std::string FolderIn(const std::string& folder) { return folder + "/millrace-cache-1"; }

 private:
  DiskCache(Parts parts, const RangeCacheOptions& options)
      : RangeCache(std::move(parts)), folder_(FolderIn(options.folder)), free_share_(options.free_share) {}
  OpenedFile OpenFile(const std::string& name) override;
  OpenedFile OpenOrMakeFile(const Kept& kept, const CacheFile::First* first, bool* made) override;
  void ForEachName(CacheFileVisitor each) override;
  uint64_t Lacking(uint64_t bytes) override;
  std::optional<double> FreeBytes() const;

  const std::string folder_;
  const double free_share_;
};

}  // namespace millrace
