#include "cache/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include "base/errno_status.h"
#include "base/number.h"
#include "base/own_folder.h"

namespace millrace {

namespace {

constexpr mode_t kPermissions = 07777;
constexpr mode_t kPrivateFolder = 0700;
constexpr mode_t kGroupFolder = 02770;  // what is made in it is the group's, too
constexpr mode_t kPrivateFile = 0600;
constexpr mode_t kGroupFile = 0660;
constexpr std::string_view kOfMemory = "/proc/self/fd/";  // links, which only the process itself can make
constexpr std::chrono::microseconds kFirstPause{50};
constexpr std::chrono::microseconds kLongestPause{20'000};

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<size_t>(slash, 1));
}

// Folders within that of a cache are its own: a link there leads to files of somebody else.
absl::Status RefuseLink(const std::string& folder) {
  struct stat named {};
  if (lstat(folder.c_str(), &named) != 0 || !S_ISLNK(named.st_mode)) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format("{}: is a link, which the cache does not follow; remove it", folder));
}

bool IsWithinCache(const std::string& folder) {
  constexpr size_t kDigits = 2;
  const std::string_view name = std::string_view(folder).substr(folder.rfind('/') + 1);
  return name.size() == kDigits && IsLowerHex(name);
}

bool IsOfGroup(const struct stat& folder) {
  return (folder.st_mode & kPermissions) == kGroupFolder;
}

// File systems without modes keep those that they have.
void SetMode(const std::string& path, mode_t mode) {
  (void)chmod(path.c_str(), mode);
}

}  // namespace

absl::Status MakeCacheFolder(const std::string& folder) {
  return MakeOwnFolder(folder, FolderSharing::kNamedGroup).status();
}

absl::StatusOr<mode_t> MakeFolderInCache(const std::string& folder) {
  RETURN_IF_ERROR(RefuseLink(folder));
  struct stat info {};
  if (stat(folder.c_str(), &info) == 0) return IsOfGroup(info) ? kGroupFile : kPrivateFile;
  const std::string above = FolderOf(folder);
  if (stat(above.c_str(), &info) != 0) {
    RETURN_IF_ERROR(MakeCacheFolder(above));
    if (stat(above.c_str(), &info) != 0) return ErrnoStatus(errno, above, "looking it up");
  }
  if (mkdir(folder.c_str(), kPrivateFolder) == 0) {
    if (IsOfGroup(info)) SetMode(folder, kGroupFolder);
  } else if (errno != EEXIST) {
    return ErrnoStatus(errno, folder, "making");
  }
  return IsOfGroup(info) ? kGroupFile : kPrivateFile;
}

absl::StatusOr<UniqueFd> OpenShared(const std::string& path) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (path.starts_with(kOfMemory) ? 0 : O_NOFOLLOW);
  const auto open_it = [&] { return UniqueFd(open(path.c_str(), flags, kPrivateFile)); };
  UniqueFd fd = open_it();
  if (!fd && errno == ENOENT) {
    RETURN_IF_ERROR(MakeCacheFolder(FolderOf(path)));
    fd = open_it();
  }
  if (!fd) return ErrnoStatus(errno, path, "opening");
  RETURN_IF_ERROR(CheckShared(fd.get(), path));
  return fd;
}

absl::Status CheckShared(int fd, const std::string& path) {
  if (IsWithinCache(FolderOf(path))) RETURN_IF_ERROR(RefuseLink(FolderOf(path)));
  struct stat file {};
  struct stat folder {};
  if (fstat(fd, &file) != 0 || stat(FolderOf(path).c_str(), &folder) != 0) {
    return ErrnoStatus(errno, path, "looking it up");
  }
  const bool own = file.st_uid == geteuid();
  const bool of_group = IsOfGroup(folder);
  if (!own && !(of_group && file.st_gid == folder.st_gid)) return OfAnotherUser(path, file.st_uid);
  const mode_t mode = of_group ? kGroupFile : kPrivateFile;
  if (own && (file.st_mode & kPermissions) != mode) (void)fchmod(fd, mode);
  return absl::OkStatus();
}

absl::Status LockInTime(const std::string& path, std::chrono::milliseconds patience, absl::FunctionRef<int()> lock,
                        absl::FunctionRef<bool()> gets_on) {
  auto deadline = std::chrono::steady_clock::now() + patience;
  for (std::chrono::microseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    if (lock() == 0) return absl::OkStatus();
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK && errno != EACCES) return ErrnoStatus(errno, path, "locking");
    const auto now = std::chrono::steady_clock::now();
    if (gets_on()) deadline = now + patience;
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          fmt::format("{}: another process has locked it for {:.3g} s and does not get on; end that process (lslocks "
                      "shows it), or name another folder",
                      path, std::chrono::duration<double>(patience).count()));
    }
    std::this_thread::sleep_for(pause);
  }
}

bool IsAt(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

bool IsGone(int fd, const std::string& path) {
  struct stat info {};
  // A file in memory has no name, but a path (/proc).
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
