#include "base/within.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace millrace {

std::string RealPathOf(const UniqueFd& file) {
  std::string path(PATH_MAX, '\0');
  const ssize_t size = readlink(fmt::format("/proc/self/fd/{}", file.get()).c_str(), path.data(), path.size());
  path.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return path;
}

bool LiesWithin(const UniqueFd& file, const std::string& root) {
  const std::string path = RealPathOf(file);
  if (path.empty() || root.empty()) return false;
  return path == root || (path.starts_with(root) && (root == "/" || path[root.size()] == '/'));
}

UniqueFd OpenWithin(const std::vector<std::string>& within, const std::string& path, int flags) {
  UniqueFd place(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!place) return place;
  if (std::none_of(within.begin(), within.end(), [&](const std::string& root) { return LiesWithin(place, root); })) {
    errno = EXDEV;
    return UniqueFd(-1);
  }
  if ((flags & O_PATH) != 0) return place;
  return UniqueFd(open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), flags));
}

}  // namespace millrace
