#include "cache/disk_usage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/errno_status.h"
#include "cache/cache_format.h"

namespace millrace {

namespace {

// What killed writers have left goes first.
uint64_t CountBytes(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code ignored;  // what cannot be looked at cannot be counted
  for (std::filesystem::directory_iterator sub(folder, ignored), end; !ignored && sub != end; sub.increment(ignored)) {
    const std::string name = sub->path().filename();
    if (sub->is_symlink(ignored) || !sub->is_directory(ignored)) continue;  // what is not ours is not counted
    RemoveAbandoned(sub->path().native()).IgnoreError();
    std::error_code of_files;
    for (std::filesystem::directory_iterator file(sub->path(), of_files); !of_files && file != end;
         file.increment(of_files)) {
      struct stat info {};
      if (!cache_format::IsFileName(name, file->path().filename().native())) continue;
      if (lstat(file->path().c_str(), &info) == 0) {
        bytes += static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes + kFileMarginBytes;
      }
    }
  }
  return bytes;
}

absl::Status Store(int fd, uint64_t value) {
  if (pwrite(fd, &value, sizeof value, 0) == sizeof value) return absl::OkStatus();
  return ErrnoStatus(errno, "the cache's count of bytes", "writing");
}

}  // namespace

absl::StatusOr<DiskUsage> DiskUsage::Open(const std::string& folder) {
  const std::string lock_path = folder + "/lock";
  const std::string number_path = folder + "/usage";
  UniqueFd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock) return ErrnoStatus(errno, lock_path, "opening");
  UniqueFd number(open(number_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!number) return ErrnoStatus(errno, number_path, "opening");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) RETURN_IF_ERROR(Store(number.get(), CountBytes(folder)));
  // Waits for one that counts.
  while (flock(lock.get(), LOCK_SH) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, lock_path, "locking");
  }
  return DiskUsage(folder, std::move(lock), std::move(number));
}

absl::StatusOr<DiskUsage> DiskUsage::MakeAgain() const {
  RETURN_IF_ERROR(MakeFolder(folder_, folder_, Durability::kUnsynced));
  return Open(folder_);
}

// What was counted in a folder that is gone says nothing of the new one.
absl::Status DiskUsage::LockNumber() {
  for (;;) {
    while (flock(number_.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return ErrnoStatus(errno, "the cache's count of bytes", "locking");
    }
    struct stat info {};
    if (fstat(number_.get(), &info) != 0 || info.st_nlink > 0) return absl::OkStatus();
    absl::StatusOr<DiskUsage> again = MakeAgain();
    if (!again.ok()) {
      flock(number_.get(), LOCK_UN);  // other processes wait for it
      return again.status();
    }
    lock_ = std::move(again->lock_);
    number_ = std::move(again->number_);
  }
}

// Adds and removes, if the sum is within the limit; returns the sum.
absl::StatusOr<uint64_t> DiskUsage::Change(uint64_t add, uint64_t remove, uint64_t limit, bool* done) {
  const std::lock_guard held(mutex_);  // flock is the process's
  const auto changed = [&](uint64_t bytes) {
    *done = add == 0 || (add <= limit && bytes <= limit - add);
    return *done ? bytes + add - std::min(bytes, remove) : bytes;
  };
  if (!number_) return bytes_ = changed(bytes_);
  RETURN_IF_ERROR(LockNumber());
  uint64_t bytes = 0;
  absl::Status status;
  if (pread(number_.get(), &bytes, sizeof bytes, 0) < 0)
    status = ErrnoStatus(errno, "the cache's count of bytes", "reading");
  bytes = changed(bytes);
  if (status.ok() && *done && add + remove > 0) status = Store(number_.get(), bytes);
  flock(number_.get(), LOCK_UN);
  RETURN_IF_ERROR(status);
  return bytes;
}

absl::StatusOr<bool> DiskUsage::Take(uint64_t bytes, uint64_t limit) {
  bool taken = false;
  RETURN_IF_ERROR(Change(bytes, 0, limit, &taken).status());
  return taken;
}

absl::Status DiskUsage::GiveBack(uint64_t bytes) {
  bool ignored = false;
  return Change(0, bytes, UINT64_MAX, &ignored).status();
}

absl::StatusOr<uint64_t> DiskUsage::bytes() {
  bool ignored = false;
  return Change(0, 0, UINT64_MAX, &ignored);
}

}  // namespace millrace
