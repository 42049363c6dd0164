#include "store/file_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/within.h"
#include "store/checks.h"
#include "store/file_system.h"

namespace millrace {

namespace {

using FolderHandle = std::unique_ptr<DIR, int (*)(DIR*)>;

bool Gone(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileWalk>> FileWalk::Open(std::string root, std::string prefix, bool folders_as_prefixes,
                                                         Start start, Links links, std::vector<std::string> within) {
  std::unique_ptr<FileWalk> walk(new FileWalk(std::move(root), std::move(prefix), folders_as_prefixes, std::move(start),
                                              links, std::move(within)));
  RETURN_IF_ERROR(walk->Begin());
  return walk;
}

std::string FileWalk::Path(std::string_view key) const {
  return fmt::format("{}/{}", root_ == "/" ? "" : root_, key);
}

// Works as stat(), or as lstat() if links are passed over.
int FileWalk::StatOf(const std::string& path, struct stat* info) const {
  return links_ == Links::kPassedOver ? lstat(path.c_str(), info) : StatWithin(within_, path, info);
}

// Goes down to the folder of the prefix. A prefix that no key can have ("..", "//") matches nothing and is never looked
// up.
absl::Status FileWalk::Begin() {
  struct stat info {};
  if (stat(root_.c_str(), &info) != 0) return ErrnoStatus(errno, root_, "listing");
  if (!S_ISDIR(info.st_mode)) return absl::NotFoundError(fmt::format("{}: is a file; a folder is needed here", root_));
  const std::string base = prefix_.substr(0, prefix_.rfind('/') + 1);
  if (base.empty()) return Enter("");
  if (!CheckFileKey(root_, std::string_view(base).substr(0, base.size() - 1)).ok()) return absl::OkStatus();
  ancestry_.emplace_back(info.st_dev, info.st_ino);
  for (size_t slash = base.find('/'); slash + 1 < base.size(); slash = base.find('/', slash + 1)) {
    const std::string path = Path(base.substr(0, slash));
    const bool found = (links_ == Links::kPassedOver ? lstat(path.c_str(), &info) : stat(path.c_str(), &info)) == 0;
    if (found && S_ISLNK(info.st_mode)) return absl::OkStatus();
    if (!found) return Gone(errno) ? absl::OkStatus() : ErrnoStatus(errno, path, "listing");
    const Identity identity{info.st_dev, info.st_ino};
    if (std::find(ancestry_.begin(), ancestry_.end(), identity) != ancestry_.end()) return absl::OkStatus();
    ancestry_.push_back(identity);
  }
  return Enter(base);
}

bool FileWalk::Wanted(std::string_view key) const {
  if (!key.starts_with(prefix_) || key.size() > kMaxKeyBytes) return false;
  if (start_.key.empty()) return true;
  if (start_.skip_below && key.starts_with(start_.key)) return false;
  // A folder holds keys beyond the start when it is greater itself or the start lies in it.
  return key > start_.key || (key.ends_with('/') && std::string_view(start_.key).starts_with(key));
}

FileWalk::EntryKind FileWalk::KindOf(DIR* folder, const dirent& entry, std::string_view key) {
  if (entry.d_type == DT_DIR) return EntryKind::kFolder;
  if (entry.d_type == DT_REG) return EntryKind::kFile;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return EntryKind::kOther;
  struct stat info {};
  const int flags = links_ == Links::kPassedOver ? AT_SYMLINK_NOFOLLOW : 0;
  const bool found = within_.empty() ? fstatat(dirfd(folder), entry.d_name, &info, flags) == 0
                                     : StatWithin(within_, Path(key), &info) == 0;
  if (!found && errno == EXDEV && !std::exchange(warned_, true)) {
    Log(LogLevel::kWarning, "store",
        fmt::format("{}; it is passed over, and so are other such links",
                    ToStd(ReadErrno(EXDEV, Path(key), "listing").message())));
  }
  if (!found) return EntryKind::kOther;  // a link to nowhere
  if (S_ISDIR(info.st_mode)) return EntryKind::kFolder;
  return S_ISREG(info.st_mode) ? EntryKind::kFile : EntryKind::kOther;
}

absl::Status FileWalk::ReadNames(Folder& folder, Identity* identity) {
  std::string path = Path(folder.key);
  int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;
  if (links_ == Links::kPassedOver && !folder.key.empty()) {  // the root may be a link
    path.pop_back();                                          // the system follows a link whose path ends with '/'
    flags |= O_NOFOLLOW;
  }
  UniqueFd fd = within_.empty() ? UniqueFd(open(path.c_str(), flags)) : OpenWithin(within_, path, flags);
  if (!fd) return ReadErrno(errno, path, "listing");
  const FolderHandle handle(fdopendir(fd.get()), closedir);
  if (handle == nullptr) return ErrnoStatus(errno, path, "listing");
  fd.Release();  // is the handle's
  struct stat info {};
  if (fstat(dirfd(handle.get()), &info) != 0) return ErrnoStatus(errno, path, "listing");
  *identity = {info.st_dev, info.st_ino};
  if (std::find(ancestry_.begin(), ancestry_.end(), *identity) != ancestry_.end())
    return absl::OkStatus();  // a loop of links
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(handle.get());
    if (entry == nullptr && errno != 0) return ErrnoStatus(errno, path, "listing");
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name == "." || name == ".." || IsTemporaryName(name)) continue;
    const EntryKind kind = KindOf(handle.get(), *entry, folder.key + name);
    if (kind == EntryKind::kOther) continue;
    if (kind == EntryKind::kFolder) name += '/';
    if (Wanted(folder.key + name)) folder.names.push_back(std::move(name));
  }
  // With the '/' at the end of folders this is the order of all keys below them.
  std::sort(folder.names.begin(), folder.names.end());
  return absl::OkStatus();
}

absl::Status FileWalk::Enter(std::string key) {
  Folder folder;
  folder.key = std::move(key);
  Identity identity;
  const absl::Status status = ReadNames(folder, &identity);
  if (absl::IsNotFound(status)) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  folders_.push_back(std::move(folder));
  ancestry_.push_back(identity);
  return absl::OkStatus();
}

absl::StatusOr<bool> FileWalk::HoldsFiles(const std::string& key) const {
  ASSIGN_OR_RETURN(const auto below, Open(root_, key, false, start_, links_, within_));
  ASSIGN_OR_RETURN(const Item* first, below->Peek());
  return first != nullptr;
}

absl::StatusOr<bool> FileWalk::MakeItem(std::string key) {
  if (key.ends_with('/')) {
    ASSIGN_OR_RETURN(const bool holds, HoldsFiles(key));
    item_ = {true, {std::move(key), 0, "", 0}};
    return holds;
  }
  const std::string path = Path(key);
  struct stat info {};
  if (StatOf(path, &info) != 0) {
    if (Gone(errno)) return false;
    return ReadErrno(errno, path, "listing");
  }
  item_ = {false, FileInfo(std::move(key), info)};
  return S_ISREG(info.st_mode);
}

absl::StatusOr<const FileWalk::Item*> FileWalk::Peek() {
  while (!have_item_ && !folders_.empty()) {
    Folder& folder = folders_.back();
    if (folder.next == folder.names.size()) {
      folders_.pop_back();
      ancestry_.pop_back();
      continue;
    }
    std::string key = folder.key + folder.names[folder.next++];
    if (key.ends_with('/') && !folders_as_prefixes_) {
      RETURN_IF_ERROR(Enter(std::move(key)));
    } else {
      ASSIGN_OR_RETURN(have_item_, MakeItem(std::move(key)));
    }
  }
  return have_item_ ? &item_ : nullptr;
}

FileWalk::Item FileWalk::Take() {
  have_item_ = false;
  return std::move(item_);
}

}  // namespace millrace
