#include "transfer/other_files.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/clock.h"

namespace millrace {

namespace {

using FolderHandle = std::unique_ptr<DIR, int (*)(DIR*)>;

// Returns the kind of what a name, or the link of that name, leads to. Returns nullopt for a regular file or a folder.
std::optional<OtherFile::Kind> KindOf(const struct stat& info) {
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return std::nullopt;
  if (S_ISFIFO(info.st_mode)) return OtherFile::Kind::kPipe;
  return S_ISSOCK(info.st_mode) ? OtherFile::Kind::kSocket : OtherFile::Kind::kDevice;
}

class OtherFileWalk {
 public:
  OtherFileWalk(const std::string& root, const OtherFilesOptions& options,
                absl::FunctionRef<absl::Status(const OtherFile&)> each)
      : root_(root), options_(options), each_(each) {}

  // `folder` is "" or ends with '/'.
  absl::Status Walk(const std::string& folder) {
    FolderHandle handle(opendir((root_ + folder).c_str()), closedir);
    struct stat info {};
    if (handle == nullptr || fstat(dirfd(handle.get()), &info) != 0) return absl::OkStatus();
    std::vector<std::string> names = Names(handle.get());
    handle.reset();  // there are no more open folders than one, however deep it is
    ancestry_.emplace_back(info.st_dev, info.st_ino);
    absl::Status status;
    for (const std::string& name : names) {
      if (options_.stop.stop_requested()) status = absl::CancelledError(fmt::format("{}: interrupted", root_));
      if (status.ok()) status = Look(folder + name, IsTemporaryName(name));
      if (!status.ok()) break;
    }
    ancestry_.pop_back();
    return status;
  }

 private:
  // Regular files cost no call, except on file systems that do not return kinds with names.
  static std::vector<std::string> Names(DIR* folder) {
    std::vector<std::string> names;
    while (const dirent* const entry = readdir(folder)) {
      std::string name = entry->d_name;
      if (name == "." || name == ".." || (entry->d_type == DT_REG && !IsTemporaryName(name))) continue;
      names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status Look(const std::string& name, bool temporary) {
    const std::string path = root_ + name;
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
    if (temporary && S_ISREG(info.st_mode)) return Give(OtherFile::Kind::kTemporary, name, info);
    const bool link = S_ISLNK(info.st_mode);
    struct stat target = info;
    if (link && stat(path.c_str(), &target) != 0) return Give(OtherFile::Kind::kBrokenLink, name, info);
    if (const std::optional<OtherFile::Kind> kind = KindOf(target)) return Give(*kind, name, info);
    if (!S_ISDIR(target.st_mode) || (link && !options_.follow_links)) return absl::OkStatus();
    const bool loop =
        std::find(ancestry_.begin(), ancestry_.end(), std::pair(target.st_dev, target.st_ino)) != ancestry_.end();
    if (loop) return Give(OtherFile::Kind::kLoop, name, info);
    return options_.recursive ? Walk(name + '/') : absl::OkStatus();
  }

  absl::Status Give(OtherFile::Kind kind, const std::string& name, const struct stat& info) {
    return each_({.kind = kind,
                  .name = name,
                  .size = static_cast<uint64_t>(info.st_size),
                  .modified_ms = MillisecondsOf(info.st_mtim)});
  }

  const std::string& root_;
  const OtherFilesOptions& options_;
  const absl::FunctionRef<absl::Status(const OtherFile&)> each_;
  std::vector<std::pair<dev_t, ino_t>> ancestry_;  // from the root to the folder being walked
};

}  // namespace

std::string_view KindText(OtherFile::Kind kind) {
  switch (kind) {
    case OtherFile::Kind::kTemporary:
      return "a temporary file";
    case OtherFile::Kind::kPipe:
      return "a pipe";
    case OtherFile::Kind::kSocket:
      return "a socket";
    case OtherFile::Kind::kDevice:
      return "a device";
    case OtherFile::Kind::kBrokenLink:
      return "a link that leads nowhere";
    case OtherFile::Kind::kLoop:
      return "a link to a folder that it is in";
  }
  return "";
}

absl::Status ForEachOtherFile(const std::string& folder, const OtherFilesOptions& options,
                              absl::FunctionRef<absl::Status(const OtherFile&)> each) {
  return OtherFileWalk(folder, options, each).Walk("");
}

}  // namespace millrace
