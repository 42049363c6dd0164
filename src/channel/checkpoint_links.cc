#include "channel/checkpoint_links.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "store/file_system.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

bool LeadsOut(const fs::path& path) {
  return path.empty() || path == "." || path.is_absolute() || *path.begin() == "..";
}

// Returns true if a link `name` may have this target on another machine. Behind another link, ".." leads to another
// place than it seems to, so it may only stand at the beginning.
bool StaysWithin(const fs::path& name, const fs::path& target) {
  return target.is_relative() && target == target.lexically_normal() &&
         !LeadsOut((name.parent_path() / target).lexically_normal());
}

int64_t LinkTimeMs(const struct stat& info) {
  return MillisecondsOf(info.st_mtim);
}

// Returns the target of the link as a store keeps it. Returns nullopt if the link leads out of the folder. `root` has
// no links in it.
std::optional<std::string> TargetWithin(const fs::path& root, const fs::path& name) {
  std::error_code error;
  const fs::path text = fs::read_symlink(root / name, error);
  if (error || text.empty()) return std::nullopt;
  const fs::path parent = fs::canonical((root / name).parent_path(), error);
  if (error) return std::nullopt;
  const fs::path there = fs::weakly_canonical(parent / text, error);
  if (error) return std::nullopt;  // a loop of links
  const fs::path within = there.lexically_relative(root);
  if (LeadsOut(within)) return std::nullopt;
  return StaysWithin(name, text) ? text.string() : there.lexically_relative(parent).string();
}

void AddLinks(const fs::path& root, const fs::path& folder, CheckpointLinks& links) {
  std::vector<fs::path> folders;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    struct stat info {};
    if (lstat(at->path().c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) folders.push_back(at->path());
    if (!S_ISLNK(info.st_mode)) continue;
    const fs::path name = at->path().lexically_relative(root);
    std::optional<std::string> target = TargetWithin(root, name);
    if (target && target->size() <= kMaxLinkBytes)
      links[name.string()] = {.target = *std::move(target), .modified_ms = LinkTimeMs(info)};
  }
  for (const fs::path& below : folders) AddLinks(root, below, links);
}

}  // namespace

CheckpointLinks FindLinks(const std::string& folder) {
  CheckpointLinks links;
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return links;
  AddLinks(root, root, links);
  return links;
}

bool IsLinkWithin(const std::string& folder, const std::string& name) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  return !error && TargetWithin(root, name);
}

bool IsBehindLink(const CheckpointLinks& links, std::string_view name) {
  if (links.empty()) return false;
  for (size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1)) {
    if (links.contains(name.substr(0, end))) return true;
  }
  return links.contains(name);
}

bool IsFileOfItsOwn(const std::string& folder, const std::string& name) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return false;
  const fs::path there = fs::canonical(root / name, error);
  return !error && (there == root / name || LeadsOut(there.lexically_relative(root)));
}

absl::StatusOr<bool> RestoreLink(const std::string& folder, const std::string& name, const CheckpointLink& link) {
  RETURN_IF_ERROR(CheckFileKey(folder, name));
  const fs::path target(link.target);
  if (link.target.find('\0') != link.target.npos || !StaysWithin(name, target)) {
    return absl::InvalidArgumentError(
        fmt::format("{}{}: leads out of the folder of checkpoints, so it was not made by --sync-checkpoints; remove it",
                    name, kLinkSuffix));
  }
  const fs::path path = fs::path(folder) / name;
  RETURN_IF_ERROR(MakeFolder(path.parent_path().string(), path.string(), Durability::kUnsynced));
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0) {
    std::error_code error;
    if (!S_ISLNK(info.st_mode) || fs::read_symlink(path, error) == target || LinkTimeMs(info) > link.modified_ms)
      return false;
    if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, path.string(), "replacing the link");
  }
  if (symlink(target.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, path.string(), "making the link");
  return true;
}

}  // namespace millrace
