#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/crypto.h"
#include "base/errno_status.h"
#include "base/life_sign.h"
#include "base/process.h"

namespace millrace {

namespace {

std::string ParentOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<size_t>(slash, 1)));  // that of "/x" is "/"
}

absl::Status SyncFolder(const std::string& folder, std::string_view name) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, name, "opening the folder");
  // Some network and FUSE file systems cannot sync a folder; there is nothing more to be done there.
  if (fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    return ErrnoStatus(errno, name, "syncing the folder");
  return absl::OkStatus();
}

// Returns the path that is to be replaced: what a symbolic link points to, unless the link itself is. Only files can be
// replaced.
absl::StatusOr<std::string> Replaceable(std::string path, std::string_view name, LinkAtPath link) {
  constexpr int kMaxLinks = 40;  // as Linux
  struct stat there {};
  for (int links = 0;; ++links) {
    if (lstat(path.c_str(), &there) != 0) return path;
    if (!S_ISLNK(there.st_mode)) break;
    if (link == LinkAtPath::kReplaced) return path;
    if (links == kMaxLinks) return ErrnoStatus(ELOOP, name, "following the symbolic link");
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) return ErrnoStatus(error.value(), name, "following the symbolic link");
    path = (std::filesystem::path(ParentOf(path)) / target).string();
  }
  if (S_ISREG(there.st_mode) || S_ISDIR(there.st_mode)) return path;  // the renaming reports a folder
  return absl::FailedPreconditionError(
      fmt::format("{}: is a device, a pipe or a socket, and must not be replaced by a file; name another path", name));
}

// Returns what the names of this machine's temporary files begin with.
const std::string& OwnPrefix() {
  static const std::string prefix = fmt::format("{}{}-", kTemporaryPrefix, HostDigits());
  return prefix;
}

// A file being written is locked, so that others can distinguish it from one whose writer was killed. Some network and
// FUSE file systems know no locks: there it is not known, and nothing is removed. On others locks do not reach beyond
// the machine.
enum class Lock { kOurs, kOfAnother, kUnknown };

Lock TryLock(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return Lock::kOurs;
  return errno == EWOULDBLOCK ? Lock::kOfAnother : Lock::kUnknown;
}

UniqueFd OpenToLock(const std::string& path) {
  UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));  // NFS locks only what may be written
  // It may have been given the permissions of a file that is read-only.
  if (!fd && errno == EACCES) fd = UniqueFd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return fd;
}

bool IsOld(int fd) {
  constexpr time_t kDay = 24 * 60 * 60;
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_mtime + kDay < time(nullptr);
}

// Opens a new temporary file, locked; -1 with errno set otherwise.
UniqueFd OpenTemporary(const std::string& path, mode_t mode) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd) return fd;
  struct stat info {};
  // A process that removes abandoned files may have come between: then the name is gone, or is about to go.
  const bool taken = TryLock(fd.get()) == Lock::kOfAnother || (fstat(fd.get(), &info) == 0 && info.st_nlink == 0);
  if (!taken) return fd;
  fd = UniqueFd(-1);
  errno = EEXIST;
  return fd;
}

// Removes a reservation whose maker was killed. That can be seen only of makers on this machine, which wrote its name.
void RemoveIfAbandoned(const std::string& reservation) {
  const UniqueFd fd(open(reservation.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || TryLock(fd.get()) != Lock::kOurs) return;
  std::string maker(OwnPrefix().size(), '\0');
  if (pread(fd.get(), maker.data(), maker.size(), 0) != static_cast<ssize_t>(maker.size()) || maker != OwnPrefix())
    return;
  struct stat opened {};
  struct stat there {};
  // Another process may have removed it, and made a new one, before this one had the lock.
  const bool is_same = fstat(fd.get(), &opened) == 0 && stat(reservation.c_str(), &there) == 0 &&
                       opened.st_ino == there.st_ino && opened.st_dev == there.st_dev;
  if (is_same) unlink(reservation.c_str());
}

// Makes the file that only one process can make. Its owner alone may put a file in the place. -1 with errno set, EEXIST
// if another process has it for too long.
UniqueFd Reserve(const std::string& reservation) {
  constexpr std::chrono::seconds kLongest{30};  // the owner needs three system calls
  const auto end = std::chrono::steady_clock::now() + kLongest;
  for (;;) {
    UniqueFd fd(open(reservation.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd) {
      // The name comes after the lock: a process that has the lock and reads the name knows that the maker is gone.
      while (flock(fd.get(), LOCK_EX) != 0 && errno == EINTR) {
      }
      if (write(fd.get(), OwnPrefix().data(), OwnPrefix().size()) > 0) return fd;
      const int error = errno;
      unlink(reservation.c_str());
      errno = error;
      return UniqueFd(-1);
    }
    if (errno != EEXIST) return fd;
    RemoveIfAbandoned(reservation);
    struct stat info {};
    const bool is_old = stat(reservation.c_str(), &info) == 0 && info.st_mtime + kLongest.count() < time(nullptr);
    if (is_old || std::chrono::steady_clock::now() > end) {
      errno = EEXIST;
      return fd;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

bool IsTemporaryName(std::string_view name) {
  return name.starts_with(kTemporaryPrefix);
}

absl::Status RemoveAbandoned(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator files(folder, error);
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    const std::string path = files->path().native();
    if (!IsTemporaryName(files->path().filename().native())) continue;
    const UniqueFd fd = OpenToLock(path);
    if (!fd || TryLock(fd.get()) != Lock::kOurs) continue;
    if (!files->path().filename().native().starts_with(OwnPrefix()) && !IsOld(fd.get())) continue;
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
      return ErrnoStatus(errno, path, "removing a file that a killed writer has left");
  }
  return error ? ErrnoStatus(error.value(), folder, "looking for temporary files") : absl::OkStatus();
}

absl::Status RemoveTemporaryFile(const std::string& path) {
  const UniqueFd fd = OpenToLock(path);
  if (!fd && errno == ENOENT) return absl::OkStatus();
  if (!fd) return ErrnoStatus(errno, path, "asking whether another process is writing it");
  if (TryLock(fd.get()) == Lock::kOfAnother) {
    return absl::FailedPreconditionError(
        fmt::format("{}: another process is writing it; wait until that has ended, or end it", path));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, path, "removing");
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& folder, std::string_view name, Durability durability) {
  const std::string parent = ParentOf(folder);
  bool made = mkdir(folder.c_str(), 0777) == 0;
  if (!made && errno == ENOENT && parent != folder) {
    RETURN_IF_ERROR(MakeFolder(parent, name, durability));
    made = mkdir(folder.c_str(), 0777) == 0;
  }
  if (made) return durability == Durability::kSynced ? SyncFolder(parent, name) : absl::OkStatus();
  if (errno != EEXIST) return ErrnoStatus(errno, name, "making its folder");
  return absl::OkStatus();  // another writer was quicker, or a file is in the way, which the next open reports
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(std::string path, std::string name,
                                                               Durability durability, mode_t mode, LinkAtPath link) {
  ASSIGN_OR_RETURN(path, Replaceable(std::move(path), name, link));
  const std::string folder = ParentOf(path);
  constexpr int kMaxTries = 1000;
  std::string temporary;
  UniqueFd fd(-1);
  int error = 0;
  for (int i = 0; i < kMaxTries && !fd; ++i) {
    temporary = fmt::format("{}/{}{}", folder, OwnPrefix(), RandomHex(8));
    fd = OpenTemporary(temporary, mode);
    error = fd ? 0 : errno;
    if (fd || error == EEXIST) continue;
    if (error != ENOENT) break;
    // Somebody may remove empty folders at the same time, as FileStore does after it has removed an object. The
    // kernel's lock of the folder can keep both in step, so that each try loses. Pauses of different lengths break
    // that.
    if (i > 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 100));
    const absl::Status made = MakeFolder(folder, name, durability);
    if (!made.ok() && !absl::IsNotFound(made)) return made;
  }
  if (error == ENOTDIR) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a part of the path is a file; a folder cannot hold a file and a folder of one name", name));
  }
  if (!fd) return ErrnoStatus(error, name, "making a temporary file beside it");
  return std::unique_ptr<AtomicFile>(
      new AtomicFile(std::move(path), std::move(name), std::move(temporary), std::move(fd), durability));
}

AtomicFile::~AtomicFile() {
  if (exists_) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Append(ByteSpan bytes) {
  RETURN_IF_ERROR(failed_);
  while (!bytes.empty()) {
    const ssize_t n = write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed_ = ErrnoStatus(errno, name_, "writing");
    MovedBytes(static_cast<uint64_t>(n));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::WriteAt(uint64_t offset, ByteSpan bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, name_, "writing");
    MovedBytes(static_cast<uint64_t>(n));
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::KeepMode() const {
  struct stat there {};
  if (stat(path_.c_str(), &there) != 0 || !S_ISREG(there.st_mode)) return absl::OkStatus();
  return SetMode(there.st_mode);
}

absl::Status AtomicFile::SetMode(mode_t mode) const {
  constexpr mode_t kPermissions = 0777;
  struct stat ours {};
  if (fstat(fd_.get(), &ours) != 0) return ErrnoStatus(errno, name_, "reading its state");
  // File systems without permissions would refuse even this.
  if ((mode & kPermissions) == (ours.st_mode & kPermissions)) return absl::OkStatus();
  if (fchmod(fd_.get(), mode & kPermissions) != 0) return ErrnoStatus(errno, name_, "setting its permissions");
  return absl::OkStatus();
}

absl::Status AtomicFile::LinkError(int error) const {
  if (error != EEXIST) return ErrnoStatus(error, name_, "putting it in its place");
  struct stat there {};
  if (stat(path_.c_str(), &there) == 0 && S_ISDIR(there.st_mode))
    return ErrnoStatus(EISDIR, name_, "putting it in its place");
  return absl::AlreadyExistsError(fmt::format("{}: is there already", name_));
}

// Looks first, and renames then, as the only process that may.
absl::Status AtomicFile::PlaceReserved() const {
  const std::string reservation = fmt::format("{}/{}place-{:016x}", ParentOf(path_), kTemporaryPrefix,
                                              Xxh3(AsBytes(std::string_view(path_).substr(path_.rfind('/') + 1))));
  const UniqueFd fd = Reserve(reservation);
  if (!fd && errno != EEXIST) return ErrnoStatus(errno, name_, "reserving its place");
  struct stat there {};
  const bool is_there = lstat(path_.c_str(), &there) == 0;
  if (!fd && !is_there) {
    return absl::FailedPreconditionError(
        fmt::format("{}: another process has reserved its place, or was killed then: if none writes there, remove {}",
                    name_, reservation));
  }
  absl::Status placed = is_there                                         ? LinkError(EEXIST)
                        : rename(temporary_.c_str(), path_.c_str()) == 0 ? absl::OkStatus()
                                                                         : ErrnoStatus(errno, name_, "renaming");
  if (fd) unlink(reservation.c_str());
  return placed;
}

// Places the file by a rename that replaces nothing. Some systems do not have that: NFS, old FUSE file systems, and
// sandboxes that refuse the call. There, a hard link is made, which takes one more change of the folder. Without hard
// links either (exFAT, SMB, file systems over S3), a second file decides, which only one process can make.
absl::Status AtomicFile::PlaceIfAbsent() const {
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) return absl::OkStatus();
  if (errno != EINVAL && errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP) return LinkError(errno);
  if (link(temporary_.c_str(), path_.c_str()) == 0) {
    unlink(temporary_.c_str());
    return absl::OkStatus();
  }
  if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP) return LinkError(errno);
  return PlaceReserved();
}

absl::StatusOr<struct stat> AtomicFile::Commit(bool only_if_absent, int64_t modified_ms) {
  RETURN_IF_ERROR(failed_);
  struct stat info {};
  if (modified_ms != 0) {
    const timespec then{.tv_sec = modified_ms / 1000, .tv_nsec = modified_ms % 1000 * 1'000'000};
    const std::array<timespec, 2> times = {timespec{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, then};
    (void)futimens(fd_.get(), times.data());  // what cannot keep it has a time of its own
  }
  const bool synced = durability_ == Durability::kSynced;
  if (synced && fsync(fd_.get()) != 0) return ErrnoStatus(errno, name_, "syncing");
  if (only_if_absent) {
    RETURN_IF_ERROR(PlaceIfAbsent());
  } else if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, name_, "renaming");
  }
  exists_ = false;
  // The state is read only now: a rename changes the file's ctime.
  if (fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, name_, "reading its state");
  if (synced) RETURN_IF_ERROR(SyncFolder(ParentOf(path_), name_));
  return info;
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view contents, mode_t mode) {
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, path, Durability::kUnsynced, mode));
  RETURN_IF_ERROR(file->Append(AsBytes(contents)));
  return file->Commit(/*only_if_absent=*/false).status();
}

}  // namespace millrace
