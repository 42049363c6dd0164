#include "base/own_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
#include "base/crypto.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/number.h"

namespace millrace {

namespace {

constexpr mode_t kPermissions = 07777;
constexpr mode_t kPrivateFolder = 0700;
constexpr mode_t kGroupFolder = 02770;  // what is made in it is the group's, too
constexpr mode_t kWritableByOthers = 022;
constexpr size_t kLargestGroup = size_t{16} << 20;  // its names, in bytes

using WantedGroup = std::optional<gid_t>;  // nullopt: none is wanted

std::string FolderAround(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<size_t>(slash, 1));
}

bool IsFolderOfGroup(const struct stat& folder, gid_t group) {
  return (folder.st_mode & kPermissions) == kGroupFolder && folder.st_gid == group;
}

absl::StatusOr<WantedGroup> NamedGroup() {
  const char* const name = std::getenv(kGroupVariable);
  if (name == nullptr || *name == '\0') return std::nullopt;
  std::vector<char> text(size_t{1} << 16);
  group entry{};
  group* found = nullptr;
  int failed = 0;
  for (;;) {
    failed = getgrnam_r(name, &entry, text.data(), text.size(), &found);
    if (failed == EINTR) continue;
    if (failed != ERANGE || text.size() >= kLargestGroup) break;
    text.resize(2 * text.size());
  }
  if (failed == 0 && found != nullptr) return entry.gr_gid;
  constexpr std::array<int, 5> kNoSuchGroup = {0, ENOENT, ESRCH, EBADF, EPERM};
  if (std::find(kNoSuchGroup.begin(), kNoSuchGroup.end(), failed) == kNoSuchGroup.end()) {
    return ErrnoStatus(failed, fmt::format("{}={}", kGroupVariable, name), "looking up the group");
  }
  if (const std::optional<gid_t> number = ParseNumber<gid_t>(name)) return *number;
  return absl::InvalidArgumentError(fmt::format("{}: this machine has no group '{}'", kGroupVariable, name));
}

absl::StatusOr<WantedGroup> GroupFor(const std::string& parent, FolderSharing sharing) {
  if (sharing == FolderSharing::kNobody) return std::nullopt;
  absl::StatusOr<WantedGroup> group = NamedGroup();
  if (sharing == FolderSharing::kNamedGroup) return group;
  struct stat above {};
  const bool is_groups = group.ok() && *group && stat(parent.c_str(), &above) == 0 && IsFolderOfGroup(above, **group);
  return is_groups ? *group : std::nullopt;
}

// File systems without modes keep those that they have.
void SetMode(const std::string& path, mode_t mode) {
  (void)chmod(path.c_str(), mode);
}

// Makes a folder for this user alone, or for the group. One that is there stays as it is.
absl::Status MakeOneFolder(const std::string& folder, WantedGroup group) {
  if (mkdir(folder.c_str(), kPrivateFolder) != 0) {
    return errno == EEXIST ? absl::OkStatus() : ErrnoStatus(errno, folder, "making");
  }
  if (!group) return absl::OkStatus();
  if (chown(folder.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    return ErrnoStatus(errno, folder, fmt::format("giving it to the group of {}", kGroupVariable));
  }
  SetMode(folder, kGroupFolder);
  return absl::OkStatus();
}

// Returns something in the folder that belongs neither to the owner nor to root; "" if there is nothing.
std::string PlantedIn(const std::string& folder, uid_t owner) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    struct stat info {};
    if (lstat(at->path().c_str(), &info) != 0) continue;
    if (info.st_uid != owner && info.st_uid != 0) return at->path();
  }
  return error ? folder : "";
}

// Takes the rights of others away. Files that another user has put there before are not used.
absl::Status CloseToOthers(const std::string& folder, const struct stat& info, FolderSharing sharing) {
  const mode_t mode = info.st_mode & kPermissions;
  if (mode == kPrivateFolder || (mode == kGroupFolder && sharing != FolderSharing::kNobody)) return absl::OkStatus();
  SetMode(folder, kPrivateFolder);
  // A cache asks each of its files.
  if ((mode & kWritableByOthers) == 0 || sharing == FolderSharing::kNamedGroup) return absl::OkStatus();
  const std::string planted = PlantedIn(folder, info.st_uid);
  if (planted.empty()) return absl::OkStatus();
  SetMode(folder, mode);
  return absl::PermissionDeniedError(
      fmt::format("{}: other users may write to this folder, and {} belongs to one of them; remove the folder, or name "
                  "another one",
                  folder, planted));
}

absl::StatusOr<OwnFolder> CheckFolder(const std::string& folder, WantedGroup group, FolderSharing sharing) {
  struct stat named {};
  struct stat info {};
  if (lstat(folder.c_str(), &named) != 0) return ErrnoStatus(errno, folder, "looking it up");
  const int error = stat(folder.c_str(), &info) != 0 ? errno : S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
  if (error != 0) {
    const bool of_another = named.st_uid != geteuid() && named.st_uid != 0;
    return of_another ? OfAnotherUser(folder, named.st_uid) : ErrnoStatus(error, folder, "opening");
  }
  const bool is_groups = group && IsFolderOfGroup(info, *group);
  if (!is_groups) {
    const bool followed = !S_ISLNK(named.st_mode) || named.st_uid == geteuid() || named.st_uid == 0;
    if (!followed) return OfAnotherUser(folder, named.st_uid);
    if (info.st_uid != geteuid() && info.st_uid != OwnerOfNewFiles(folder)) return OfAnotherUser(folder, info.st_uid);
  }
  if (group && !is_groups && sharing == FolderSharing::kNamedGroup) {
    return absl::FailedPreconditionError(
        fmt::format("{}: is not a folder of the group of {} (mode 2770); remove it, so that it is made again", folder,
                    kGroupVariable));
  }
  if (!is_groups) RETURN_IF_ERROR(CloseToOthers(folder, info, sharing));
  const bool shared = (info.st_mode & kPermissions) == kGroupFolder && sharing != FolderSharing::kNobody;
  return OwnFolder{.path = folder,
                   .owner = is_groups ? geteuid() : info.st_uid,
                   .group = shared ? WantedGroup(info.st_gid) : std::nullopt};
}

std::array<std::string, 2> Candidates(const std::string& parent, std::string_view name) {
  const std::string first = fmt::format("{}{}{}", parent, parent.ends_with('/') ? "" : "/", name);
  return {first, fmt::format("{}-{}", first, geteuid())};
}

}  // namespace

absl::Status OfAnotherUser(const std::string& path, uid_t owner) {
  return absl::PermissionDeniedError(fmt::format(
      "{}: belongs to another user (number {}), who could change or block files in it; name another folder, "
      "or share one with a group ({})",
      path, owner, kGroupVariable));
}

std::optional<uid_t> OwnerOfNewFiles(const std::string& folder) {
  const std::string path = fmt::format("{}/{}{}", folder, kTemporaryPrefix, RandomHex(8));
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return std::nullopt;
  struct stat made {};
  const bool known = fstat(fd.get(), &made) == 0;
  unlink(path.c_str());
  return known ? std::optional(made.st_uid) : std::nullopt;
}

absl::StatusOr<OwnFolder> MakeOwnFolder(const std::string& folder, FolderSharing sharing) {
  const std::string above = FolderAround(folder);  // that users name
  ASSIGN_OR_RETURN(const WantedGroup group, GroupFor(above, sharing));
  RETURN_IF_ERROR(MakeFolder(FolderAround(above), folder, Durability::kUnsynced));
  RETURN_IF_ERROR(MakeOneFolder(above, group));
  RETURN_IF_ERROR(MakeOneFolder(folder, group));
  return CheckFolder(folder, group, sharing);
}

absl::StatusOr<OwnFolder> TakeOwnFolder(const std::string& parent, std::string_view name, FolderSharing sharing) {
  RETURN_IF_ERROR(MakeFolder(parent, parent, Durability::kUnsynced));
  ASSIGN_OR_RETURN(const WantedGroup group, GroupFor(parent, sharing));
  absl::Status first;
  for (const std::string& folder : Candidates(parent, name)) {
    absl::Status made = MakeOneFolder(folder, group);
    if (!made.ok()) return first.ok() ? made : first;
    absl::StatusOr<OwnFolder> taken = CheckFolder(folder, group, sharing);
    if (taken.ok() && !first.ok()) {
      Log(LogLevel::kInfo, "base", fmt::format("{} is used instead: {}", folder, ToStd(first.message())));
    }
    if (taken.ok() || !absl::IsPermissionDenied(taken.status())) return taken;
    if (first.ok()) first = taken.status();
  }
  return first;
}

std::vector<OwnFolder> FindOwnFolders(const std::string& parent, std::string_view name, FolderSharing sharing) {
  std::vector<OwnFolder> found;
  const absl::StatusOr<WantedGroup> group = GroupFor(parent, sharing);
  if (!group.ok()) return found;
  for (const std::string& folder : Candidates(parent, name)) {
    if (absl::StatusOr<OwnFolder> one = CheckFolder(folder, *group, sharing); one.ok())
      found.push_back(*std::move(one));
  }
  return found;
}

absl::StatusOr<OwnFolder> FindOwnFolder(const std::string& parent, std::string_view name, FolderSharing sharing) {
  std::vector<OwnFolder> found = FindOwnFolders(parent, name, sharing);
  if (!found.empty()) return std::move(found.front());
  return absl::NotFoundError(fmt::format("{} has no folder '{}' of this user", parent, name));
}

absl::Status CheckOwnFile(int fd, const std::string& path, const OwnFolder& folder) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, path, "looking it up");
  const bool may_be_used = info.st_uid == folder.owner || (folder.group && info.st_gid == *folder.group);
  return may_be_used ? absl::OkStatus() : OfAnotherUser(path, info.st_uid);
}

absl::StatusOr<UniqueFd> OpenOwnFile(const OwnFolder& folder, const std::string& path, int flags) {
  const int cut = flags & O_TRUNC;
  UniqueFd fd(open(path.c_str(), (flags & ~O_TRUNC) | O_NOFOLLOW | O_CLOEXEC, folder.file_mode()));
  if (!fd && errno == ELOOP) return absl::PermissionDeniedError(fmt::format("{}: is a link; remove it", path));
  if (!fd) return ErrnoStatus(errno, path, "opening");
  RETURN_IF_ERROR(CheckOwnFile(fd.get(), path, folder));
  if (cut != 0 && ftruncate(fd.get(), 0) != 0) return ErrnoStatus(errno, path, "emptying");
  return fd;
}

absl::Status CheckNotOfAnotherUser(const std::string& path) {
  struct stat named {};
  struct stat info {};
  if (lstat(path.c_str(), &named) != 0) return absl::OkStatus();
  if (named.st_uid != geteuid() && named.st_uid != 0) return OfAnotherUser(path, named.st_uid);
  if (stat(path.c_str(), &info) != 0) return absl::OkStatus();
  return info.st_uid == geteuid() || info.st_uid == 0 ? absl::OkStatus() : OfAnotherUser(path, info.st_uid);
}

}  // namespace millrace
