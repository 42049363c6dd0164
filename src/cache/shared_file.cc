#include "cache/shared_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/atomic_file.h"
#include "base/errno_status.h"

namespace millrace {

absl::StatusOr<UniqueFd> OpenShared(const std::string& path) {
  const auto open_it = [&] { return UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)); };
  UniqueFd fd = open_it();
  if (!fd && errno == ENOENT) {
    RETURN_IF_ERROR(MakeFolder(path.substr(0, path.rfind('/')), path, Durability::kUnsynced));
    fd = open_it();
  }
  if (!fd) return ErrnoStatus(errno, path, "opening");
  return fd;
}

bool IsAt(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

bool IsGone(int fd, const std::string& path) {
  struct stat info {};
  // What is in memory has no name, but a path (/proc).
  return fstat(fd, &info) == 0 && info.st_nlink == 0 && !IsAt(fd, path);
}

bool OpenAgainIfGone(const std::string& path, UniqueFd* fd) {
  if (!IsGone(fd->get(), path)) return false;
  absl::StatusOr<UniqueFd> again = OpenShared(path);
  if (!again.ok()) return false;
  *fd = *std::move(again);
  return true;
}

}  // namespace millrace
