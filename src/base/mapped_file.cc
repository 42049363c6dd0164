#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/bus_error.h"
#include "base/unique_fd.h"
#include "base/within.h"

namespace millrace {
namespace {

// Returns 0, or the error; ENODATA if the file has become shorter.
int ReadWhole(int fd, std::byte* to, size_t size) {
  for (size_t at = 0; at < size;) {
    const ssize_t n = pread(fd, to + at, size - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? ENODATA : errno;
    at += static_cast<size_t>(n);
  }
  return 0;
}

// The open does not block, for the case that it is a pipe: opening one for reading would wait for a writer.
constexpr int kMapFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

absl::Status MapFailed(int error, const std::string& path) {
  if (error == ENODATA) {
    return absl::UnavailableError(
        fmt::format("{}: was cut short while it was read; replace such a file by renaming, then try again", path));
  }
  const std::string message = fmt::format("{}: {}", path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR || error == EXDEV) return absl::NotFoundError(message);
  return error == EACCES ? absl::PermissionDeniedError(message) : absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path, const std::vector<std::string>& within,
                                            uint64_t most_read) {
  const UniqueFd file = within.empty() ? UniqueFd(open(path.c_str(), kMapFlags)) : OpenWithin(within, path, kMapFlags);
  if (!file) return MapFailed(errno, path);
  return Read(file, path, most_read);
}

absl::StatusOr<MappedFile> MappedFile::OpenOwn(const std::string& path, const OwnFolder& folder, uint64_t most_read) {
  const UniqueFd file(open(path.c_str(), kMapFlags | O_NOFOLLOW));
  if (!file && errno == ELOOP) return absl::PermissionDeniedError(fmt::format("{}: is a link; remove it", path));
  if (!file) return MapFailed(errno, path);
  RETURN_IF_ERROR(CheckOwnFile(file.get(), path, folder));
  return Read(file, path, most_read);
}

absl::StatusOr<MappedFile> MappedFile::Read(const UniqueFd& file, const std::string& path, uint64_t most_read) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return MapFailed(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(fmt::format("{}: is not a regular file", path));
  if (info.st_size == 0) return MappedFile(ByteSpan());
  const auto size = static_cast<size_t>(info.st_size);
  if (size <= most_read) {
    auto memory = std::make_unique_for_overwrite<std::byte[]>(size);
    if (const int error = ReadWhole(file.get(), memory.get(), size); error != 0) return MapFailed(error, path);
    const ByteSpan bytes(memory.get(), size);
    return MappedFile(bytes, std::move(memory));
  }
  const void* const mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) return MapFailed(errno, path);
  const ByteSpan bytes(static_cast<const std::byte*>(mapping), size);
  ExplainBusErrorsIn(bytes, path);
  return MappedFile(bytes);
}

MappedFile::~MappedFile() {
  if (bytes_.empty() || memory_ != nullptr) return;
  ForgetBusErrorsIn(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace millrace
