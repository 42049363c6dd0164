#include "store/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/within.h"

namespace millrace {

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
      return refuse(fmt::format("names beginning with '{}' are kept for files being written", kTemporaryPrefix));
    begin = end + 1;
  }
  return absl::OkStatus();
}

int StatWithin(const std::vector<std::string>& within, const std::string& path, struct stat* info) {
  if (within.empty()) return stat(path.c_str(), info);
  const UniqueFd place = OpenWithin(within, path, O_PATH | O_CLOEXEC);
  return place ? fstat(place.get(), info) : -1;
}

absl::Status ReadErrno(int error, std::string_view uri, std::string_view operation) {
  if (error != EXDEV) return ErrnoStatus(error, uri, operation);
  return absl::PermissionDeniedError(
      fmt::format("{}: {} failed: it lies in no folder that may be read here, or a link leads out of them; allow the "
                  "folder that holds the file, or copy the file",
                  uri, operation));
}

std::string FileEtag(const struct stat& info) {
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  };
  return fmt::format("{:x}-{:x}-{:x}-{:x}", info.st_size, nanoseconds(info.st_mtim), info.st_ino,
                     nanoseconds(info.st_ctim));
}

ObjectInfo FileInfo(std::string key, const struct stat& info) {
  return {std::move(key), static_cast<uint64_t>(info.st_size), FileEtag(info), MillisecondsOf(info.st_mtim)};
}

}  // namespace millrace
