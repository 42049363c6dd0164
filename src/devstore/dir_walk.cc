#include "devstore/dir_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "devstore/s3_error.h"
#include "devstore/sidecar.h"
#include "devstore/within_root.h"

namespace millrace {

namespace {

constexpr size_t kMaxNames = size_t{4} << 20;
constexpr size_t kMaxSeen = 4096;
constexpr size_t kMaxKey = 1024;
/// A folder that changed within this time may change again without a new time: clocks of file systems tick slowly.
constexpr int64_t kRacyNs = 100'000'000;

// Returns the ctime: it changes with the names in the folder, and no program can set it back.
int64_t ChangedNs(const struct stat& stat) {
  return NanosecondsOf(stat.st_ctim);
}

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

/// Returns whether a link, whose name is in the folder with this descriptor, is followed.
using FollowsLink = absl::FunctionRef<bool(int dir_fd, const char* name)>;

/// Returns "file", "folder/", or nullopt for anything else.
std::optional<std::string> SortName(int dir_fd, const dirent& entry, FollowsLink follows) {
  std::string name = entry.d_name;
  if (name == "." || name == "..") return std::nullopt;
  unsigned char type = entry.d_type;
  if (type == DT_LNK || type == DT_UNKNOWN) {
    struct stat stat;
    if (fstatat(dir_fd, entry.d_name, &stat, 0) != 0) return std::nullopt;  // a broken link
    type = S_ISDIR(stat.st_mode) ? DT_DIR : S_ISREG(stat.st_mode) ? DT_REG : DT_UNKNOWN;
    if (type != DT_UNKNOWN && !follows(dir_fd, entry.d_name)) return std::nullopt;
  }
  if (type == DT_DIR) return name + "/";
  if (type == DT_REG) return name;
  return std::nullopt;
}

/// `check` runs before each name.
absl::StatusOr<std::vector<std::string>> ReadNames(const std::string& path, FollowsLink follows,
                                                   absl::FunctionRef<absl::Status()> check) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseDir> dir(opendir(path.c_str()));
  if (dir == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG) return names;
    return FileError(errno, "listing", path);
  }
  errno = 0;
  while (const dirent* entry = readdir(dir.get())) {
    RETURN_IF_ERROR(check());
    if (auto name = SortName(dirfd(dir.get()), *entry, follows)) names.push_back(*std::move(name));
    errno = 0;
  }
  if (errno != 0) return FileError(errno, "listing", path);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadFolder(const std::string& path) {
  return ReadNames(
      path, [](int, const char*) { return true; }, [] { return absl::OkStatus(); });
}

bool RemoveEmptyFolders(const std::string& path) {
  struct stat stat;
  if (lstat(path.c_str(), &stat) != 0 || !S_ISDIR(stat.st_mode)) return false;  // never through a link
  const auto names = ReadFolder(path);
  if (!names.ok()) return false;
  for (const std::string& name : *names) {
    if (name.ends_with('/')) RemoveEmptyFolders(path + "/" + name.substr(0, name.size() - 1));
  }
  return rmdir(path.c_str()) == 0;
}

absl::Status DirCache::CheckRunning() const {
  return stopped_ ? S3Error(s3code::kInternalError, "The server is ending.") : absl::OkStatus();
}

bool DirCache::Serves(int dir_fd, const char* name, const std::string& folder) {
  const UniqueFd target(openat(dir_fd, name, O_PATH | O_CLOEXEC));
  if (!target) return false;
  if (LiesWithin(target, root_)) return true;
  if (!warned_.exchange(true)) {
    Log(LogLevel::kWarning, "devstore",
        fmt::format("{}/{} is a symbolic link that leads out of {}: devstore serves neither its target nor those of "
                    "other such links; serve a folder that holds it, or copy it",
                    folder.substr(0, folder.find_last_not_of('/') + 1), name, root_));
  }
  return false;
}

absl::StatusOr<DirCache::Names> DirCache::Read(const std::string& path) {
  // The time is taken first: what changes while the folder is read shows as a newer time later.
  struct stat stat;
  if (::stat(path.c_str(), &stat) != 0) return std::make_shared<const std::vector<std::string>>();
  const int64_t changed_ns = ChangedNs(stat);
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(path);
    if (found != entries_.end() && found->second.inode == stat.st_ino && found->second.changed_ns == changed_ns) {
      return found->second.names;
    }
  }
  const int64_t read_ns = absl::GetCurrentTimeNanos();
  ASSIGN_OR_RETURN(std::vector<std::string> read,
                   ReadNames(
                       path, [&](int dir_fd, const char* name) { return Serves(dir_fd, name, path); },
                       [&] { return CheckRunning(); }));
  auto names = std::make_shared<const std::vector<std::string>>(std::move(read));
  if (read_ns - changed_ns <= kRacyNs || names->size() > kMaxNames) return names;
  std::lock_guard lock(mutex_);
  if (names_ + names->size() > kMaxNames) {
    entries_.clear();
    names_ = 0;
  }
  Entry& entry = entries_[path];
  names_ += names->size() - (entry.names ? entry.names->size() : 0);
  entry = {stat.st_ino, changed_ns, names};
  return names;
}

absl::StatusOr<DirCache::Names> DirWalk::NamesOf(const std::string& folder) {
  const auto found = seen_.find(folder);
  if (found != seen_.end()) return found->second;
  std::string path = root_ + "/" + folder;  // the '/' at the end does no harm
  ASSIGN_OR_RETURN(DirCache::Names names, cache_.Read(path));
  if (seen_.size() >= kMaxSeen) seen_.clear();
  seen_[folder] = names;
  return names;
}

absl::StatusOr<std::optional<std::string>> DirWalk::FirstFrom(std::string_view from) {
  return Search("", from);
}

/// `folder` is "" or ends with '/'; `from` and the keys compared with it are relative to it.
absl::StatusOr<std::optional<std::string>> DirWalk::Search(const std::string& folder, std::string_view from) {
  if (folder.size() > kMaxKey) return std::nullopt;  // no key is that long; links may form circles
  RETURN_IF_ERROR(cache_.CheckRunning());
  ASSIGN_OR_RETURN(const DirCache::Names names, NamesOf(folder));
  auto next = std::lower_bound(names->begin(), names->end(), from);
  // Keys from `from` on can be only in the folder right before that place.
  if (next != names->begin()) {
    const std::string& before = *std::prev(next);
    if (before.ends_with('/') && from.starts_with(before)) {
      ASSIGN_OR_RETURN(auto key, Search(folder + before, from.substr(before.size())));
      if (key) return key;
    }
  }
  for (; next != names->end(); ++next) {
    if (!next->ends_with('/')) return folder + *next;
    ASSIGN_OR_RETURN(auto key, Search(folder + *next, ""));
    if (key) return key;
  }
  return std::nullopt;
}

}  // namespace millrace
