#pragma once

#include <stop_token>
#include <string>
#include <utility>

#include "base/status.h"

namespace millrace {

/// The exclusive lock of a file or folder (flock), held until destruction; the system frees it when the process ends,
/// however it ends. Movable. Without a lock it does nothing.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }

  /// Waits for the lock of a folder, or of a file, which is made if it does not exist. Where that cannot be (a folder
  /// that is missing or read-only, a file system without locks) it returns one that does nothing. Cancelled soon after
  /// `stop` is requested.
  static absl::StatusOr<FileLock> OfFolder(const std::string& path, std::stop_token stop);
  static absl::StatusOr<FileLock> OfFile(const std::string& path, std::stop_token stop);

 private:
  explicit FileLock(int file) : file_(file) {}
  static absl::StatusOr<FileLock> Take(int file, const std::string& path, const std::stop_token& stop);
  int file_ = -1;
};

}  // namespace millrace
