#include "store/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/crypto.h"

namespace millrace {

namespace {

constexpr std::string_view kTemporary = ".millrace-tmp-";

std::string_view ParentOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return path.substr(0, std::max<size_t>(slash, 1));  // that of "/x" is "/"
}

absl::Status SyncFolder(const std::string& folder, std::string_view uri) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, uri, "opening the folder");
  // Some network and FUSE file systems cannot sync a folder; there is nothing more to be done there.
  if (fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) return ErrnoStatus(errno, uri, "syncing the folder");
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& folder, std::string_view uri) {
  const std::string parent(ParentOf(folder));
  bool made = mkdir(folder.c_str(), 0777) == 0;
  if (!made && errno == ENOENT && parent != folder) {
    RETURN_IF_ERROR(MakeFolder(parent, uri));
    made = mkdir(folder.c_str(), 0777) == 0;
  }
  if (made) return SyncFolder(parent, uri);
  if (errno != EEXIST) return ErrnoStatus(errno, uri, "making its folder");
  return absl::OkStatus();  // another writer was quicker, or a file is in the way, which the next open reports
}

}  // namespace

absl::Status ErrnoStatus(int error, std::string_view uri, std::string_view operation) {
  const auto message = [&](std::string_view remedy) {
    return fmt::format("{}: {} failed: {}{}", uri, operation, std::strerror(error), remedy);
  };
  switch (error) {
    case ENOENT:
    case ELOOP:
      return absl::NotFoundError(message(""));
    case ENOTDIR:
      return absl::NotFoundError(message(" (a part of the path is a file, not a folder)"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message("; check the owner and mode of the file and its folders"));
    case EROFS:
      return absl::PermissionDeniedError(message("; choose a place that can be written"));
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message("; free space there or choose another place"));
    case EFBIG:
      return absl::ResourceExhaustedError(
          message("; raise the limit of the file size (ulimit -f) or choose another file system"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message("; raise the limit of open files (ulimit -n)"));
    case ENOMEM:
      return absl::ResourceExhaustedError(message("; free memory"));
    case EISDIR:
      return absl::InvalidArgumentError(message("; a folder cannot hold an object and a folder of one name"));
    case ENAMETOOLONG:
    case EINVAL:
    case EILSEQ:
      return absl::InvalidArgumentError(message("; this file system cannot hold such a name"));
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
      return absl::UnavailableError(message("; check the disk or the network mount"));
    default:
      return absl::UnknownError(message(""));
  }
}

absl::Status CheckFileKey(std::string_view uri, std::string_view key) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("{}: a folder cannot hold this key: {}", uri, why));
  };
  if (key.starts_with('/')) return refuse("it begins with '/'");
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('/', begin), key.size());
    const std::string_view part = key.substr(begin, end - begin);
    if (part.empty()) return refuse("a component is empty");
    if (part == "." || part == "..") return refuse("'.' and '..' are no names");
    if (part.size() > NAME_MAX) return refuse(fmt::format("a component has more than {} bytes", NAME_MAX));
    if (IsTemporaryName(part))
      return refuse(fmt::format("names beginning with '{}' are kept for files being written", kTemporary));
    begin = end + 1;
  }
  return absl::OkStatus();
}

bool IsTemporaryName(std::string_view name) {
  return name.starts_with(kTemporary);
}

std::string FileEtag(const struct stat& info) {
  const uint64_t nanoseconds = static_cast<uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
  return fmt::format("{:x}-{:x}-{:x}", info.st_size, nanoseconds, info.st_ino);
}

ObjectInfo FileInfo(std::string key, const struct stat& info) {
  return {std::move(key), static_cast<uint64_t>(info.st_size), FileEtag(info),
          int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000};
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<TempFile>> TempFile::Create(std::string path, std::string uri) {
  const std::string folder(ParentOf(path));
  std::string temporary = fmt::format("{}/{}{}", folder, kTemporary, RandomHex(8));
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  UniqueFd fd(open(temporary.c_str(), flags, 0666));
  if (!fd && errno == ENOENT) {
    RETURN_IF_ERROR(MakeFolder(folder, uri));
    fd = UniqueFd(open(temporary.c_str(), flags, 0666));
  }
  if (!fd && errno == ENOTDIR) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a part of the path is a file; a folder cannot hold an object and a folder of one name", uri));
  }
  if (!fd) return ErrnoStatus(errno, uri, "making a temporary file beside it");
  return std::unique_ptr<TempFile>(new TempFile(std::move(path), std::move(uri), std::move(temporary), std::move(fd)));
}

TempFile::~TempFile() {
  if (exists_) unlink(temporary_.c_str());
}

absl::Status TempFile::Append(ByteSpan bytes) {
  RETURN_IF_ERROR(failed_);
  while (!bytes.empty()) {
    const ssize_t n = write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed_ = ErrnoStatus(errno, uri_, "writing");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status TempFile::LinkError(int error) const {
  if (error != EEXIST) return ErrnoStatus(error, uri_, "linking");
  struct stat there {};
  if (stat(path_.c_str(), &there) == 0 && S_ISDIR(there.st_mode)) return ErrnoStatus(EISDIR, uri_, "linking");
  return absl::AlreadyExistsError(fmt::format("{}: there is an object of that key already", uri_));
}

absl::StatusOr<struct stat> TempFile::Commit(bool only_if_absent) {
  RETURN_IF_ERROR(failed_);
  struct stat info {};
  if (fsync(fd_.get()) != 0) return ErrnoStatus(errno, uri_, "syncing");
  if (fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, uri_, "reading its state");
  if (only_if_absent) {
    if (link(temporary_.c_str(), path_.c_str()) != 0) return LinkError(errno);
    unlink(temporary_.c_str());
  } else if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, uri_, "renaming");
  }
  exists_ = false;
  RETURN_IF_ERROR(SyncFolder(std::string(ParentOf(path_)), uri_));
  return info;
}

}  // namespace millrace
