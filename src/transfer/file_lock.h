#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <utility>

#include "base/status.h"

namespace millrace {

/// A process waits this long for the lock of a folder: longer than it takes to build most indexes.
inline constexpr std::chrono::minutes kMaxFolderWait{10};

/// Holds the exclusive lock of a file or folder (flock) until destruction; the system frees it when the process ends,
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
  ///
  /// Any user who may read a folder can hold its lock: DeadlineExceeded after `max_wait`. A file is this user's alone
  /// (0600); one of another user is not locked.
  static absl::StatusOr<FileLock> OfFolder(const std::string& path, std::stop_token stop,
                                           std::chrono::milliseconds max_wait = kMaxFolderWait);
  static absl::StatusOr<FileLock> OfFile(const std::string& path, std::stop_token stop);

 private:
  explicit FileLock(int file) : file_(file) {}
  absl::Status Take(const std::string& path, const std::stop_token& stop, std::chrono::milliseconds max_wait);
  int file_ = -1;
};

}  // namespace millrace
