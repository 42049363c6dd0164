#include "channel/file_content.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/buffer.h"
#include "base/errno_status.h"
#include "base/unique_fd.h"
#include "store/file_system.h"

namespace millrace {

namespace {

constexpr int kMaxLooks = 20;
constexpr uint64_t kReadBytes = 1 << 20;

struct OpenedFile {
  UniqueFd fd;
  struct stat info {};
};

absl::StatusOr<OpenedFile> OpenRegular(const std::string& path) {
  OpenedFile file{.fd = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (!file.fd || fstat(file.fd.get(), &file.info) != 0) return ErrnoStatus(errno, path, "opening");
  if (!S_ISREG(file.info.st_mode)) return absl::NotFoundError(fmt::format("{}: is not a regular file", path));
  return file;
}

// Fewer bytes than there is room for: the file ends there.
absl::StatusOr<size_t> ReadSome(int fd, const std::string& path, MutableByteSpan into, uint64_t offset) {
  size_t filled = 0;
  while (filled < into.size()) {
    const ssize_t n = pread(fd, into.data() + filled, into.size() - filled, static_cast<off_t>(offset + filled));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path, "reading");
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  return filled;
}

}  // namespace

absl::StatusOr<SeenContent> ReadUnchanged(const std::string& path, uint64_t max_bytes) {
  SeenContent content;
  for (int look = 0; look < kMaxLooks; ++look) {
    ASSIGN_OR_RETURN(const OpenedFile file, OpenRegular(path));
    if (static_cast<uint64_t>(file.info.st_size) > max_bytes) {
      return absl::FailedPreconditionError(fmt::format("{}: has grown while it was looked at", path));
    }
    content.version = FileEtag(file.info);
    content.bytes.resize(static_cast<size_t>(file.info.st_size));
    const MutableByteSpan into(reinterpret_cast<std::byte*>(content.bytes.data()), content.bytes.size());
    ASSIGN_OR_RETURN(const size_t count, ReadSome(file.fd.get(), path, into, 0));
    content.bytes.resize(count);
    struct stat after {};
    // A file that is written in place is empty for a moment.
    if (count > 0 && fstat(file.fd.get(), &after) == 0 && FileEtag(after) == content.version) break;
  }
  return content;
}

absl::StatusOr<std::string> AppendFile(const std::string& path, uint64_t min_bytes, ObjectWriter& writer) {
  ASSIGN_OR_RETURN(const OpenedFile file, OpenRegular(path));
  const auto size = static_cast<uint64_t>(file.info.st_size);
  Buffer piece(std::min(size, kReadBytes));
  uint64_t offset = 0;
  while (offset < size) {
    const MutableByteSpan into = piece.span().first(std::min(size - offset, kReadBytes));
    ASSIGN_OR_RETURN(const size_t count, ReadSome(file.fd.get(), path, into, offset));
    RETURN_IF_ERROR(writer.Append(into.first(count)));
    offset += count;
    if (count < into.size()) break;
  }
  if (offset < min_bytes) {
    return absl::FailedPreconditionError(fmt::format("{}: became shorter while it was copied", path));
  }
  return FileEtag(file.info);
}

}  // namespace millrace
