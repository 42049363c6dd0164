#include "devstore/within_root.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace millrace {

namespace {

constexpr int kPlace = O_PATH | O_DIRECTORY | O_CLOEXEC;

}  // namespace

UniqueFd MakeFolderWithin(const std::string& root, const std::string& path) {
  UniqueFd folder(open(root.c_str(), kPlace));
  std::string_view rest = std::string_view(path).substr(root.size());
  while (folder && !rest.empty()) {
    const std::string name(rest.substr(0, rest.find('/')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name.empty()) continue;
    UniqueFd next(openat(folder.get(), name.c_str(), kPlace));
    if (!next && errno == ENOENT) {
      if (mkdirat(folder.get(), name.c_str(), 0777) != 0 && errno != EEXIST) return UniqueFd(-1);
      next = UniqueFd(openat(folder.get(), name.c_str(), kPlace));
    }
    if (next && !LiesWithin(next, root)) {
      errno = ELOOP;
      return UniqueFd(-1);
    }
    folder = std::move(next);
  }
  return folder;
}

}  // namespace millrace
