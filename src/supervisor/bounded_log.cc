#include "supervisor/bounded_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/errno_status.h"

namespace millrace {

namespace {

UniqueFd OpenNew(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BoundedLog>> BoundedLog::Make(const std::string& path, uint64_t max_bytes) {
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) RETURN_IF_ERROR(MakeFolder(folder, folder, Durability::kUnsynced));
  UniqueFd fd = OpenNew(path);
  if (!fd && errno == EEXIST) return absl::AlreadyExistsError(path + " exists already");
  if (!fd) return ErrnoStatus(errno, path, "making the log");
  return std::unique_ptr<BoundedLog>(new BoundedLog(path, max_bytes, std::move(fd)));
}

absl::Status BoundedLog::Append(std::string_view text) {
  while (!text.empty() && fd_) {
    if (size_ >= half_bytes_) RETURN_IF_ERROR(Turn());
    const size_t room = static_cast<size_t>(std::min<uint64_t>(text.size(), half_bytes_ - size_));
    const ssize_t wrote = write(fd_.get(), text.data(), room);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int error = wrote < 0 ? errno : ENOSPC;
      fd_ = UniqueFd(-1);
      return ErrnoStatus(error, path_, "writing to the log");
    }
    size_ += static_cast<uint64_t>(wrote);
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status BoundedLog::Turn() {
  fd_ = UniqueFd(-1);
  const std::string older = path_ + ".1";
  if (std::rename(path_.c_str(), older.c_str()) != 0) return ErrnoStatus(errno, older, "renaming the log");
  fd_ = OpenNew(path_);
  if (!fd_) return ErrnoStatus(errno, path_, "making the log");
  size_ = 0;
  return absl::OkStatus();
}

}  // namespace millrace
