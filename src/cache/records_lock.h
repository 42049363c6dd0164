#pragma once

#include <fcntl.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/status.h"
#include "cache/shared_file.h"

namespace millrace {

/// Is exclusive among processes, for changes of the records; the lock of the whole file (flock) is another kind. A file
/// in memory (-1) has no other process to lock out.
class RecordsLock {
 public:
  /// Returns DeadlineExceeded after `patience`; it is zero then, so that nobody waits for this file again.
  static absl::StatusOr<RecordsLock> Take(int fd, const std::string& path, std::chrono::milliseconds& patience) {
    if (fd < 0) return RecordsLock(-1);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    absl::Status locked = LockInTime(path, patience, [&] { return fcntl(fd, F_OFD_SETLK, &lock); });
    if (absl::IsDeadlineExceeded(locked)) patience = {};
    RETURN_IF_ERROR(locked);
    return RecordsLock(fd);
  }
  RecordsLock(RecordsLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RecordsLock() {
    if (fd_ < 0) return;
    struct flock lock {};
    lock.l_type = F_UNLCK;
    lock.l_whence = SEEK_SET;
    fcntl(fd_, F_OFD_SETLK, &lock);
  }

 private:
  explicit RecordsLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace millrace
