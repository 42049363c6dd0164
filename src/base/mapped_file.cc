#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "base/within.h"

namespace millrace {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path, const std::vector<std::string>& within) {
  const auto failed = [&](int error) {
    const std::string message = fmt::format("{}: {}", path, std::strerror(error));
    if (error == ENOENT || error == ENOTDIR || error == EXDEV) return absl::NotFoundError(message);
    return error == EACCES ? absl::PermissionDeniedError(message) : absl::UnavailableError(message);
  };
  constexpr int kFlags = O_RDONLY | O_CLOEXEC;
  const UniqueFd file = within.empty() ? UniqueFd(open(path.c_str(), kFlags)) : OpenWithin(within, path, kFlags);
  if (!file) return failed(errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return failed(errno);
  if (info.st_size == 0) return MappedFile(ByteSpan());
  const auto size = static_cast<size_t>(info.st_size);
  const void* const mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) return failed(errno);
  return MappedFile(ByteSpan(static_cast<const std::byte*>(mapping), size));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace millrace
