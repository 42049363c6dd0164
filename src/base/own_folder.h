#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

/// These are folders of the program's own, inside a folder that other users may write to: /tmp, a scratch disk, the
/// folder of a cache. Another user may have made such a folder before, or put a link or a file there. So every folder
/// and file in use belongs to this user, or to the group that this user has named.

namespace millrace {

/// This variable names a group that shares caches: its members trust each other. Its folders have the mode 2770.
inline constexpr const char* kGroupVariable = "MILLRACE_CACHE_GROUP";

enum class FolderSharing : uint8_t {
  kNobody,         // this user alone (0700)
  kNamedGroup,     // the group of kGroupVariable, if it is set
  kGroupOfParent,  // the group of kGroupVariable, if the folder around it is this group's; one of this user stays so
};

/// Describes a folder that was checked.
struct OwnFolder {
  std::string path;
  uid_t owner = 0;                  // of the files that this process makes there
  std::optional<gid_t> group = {};  // that shares it
  mode_t file_mode() const { return group ? 0660 : 0600; }
};

/// Returns PermissionDenied: the file or folder at the path belongs to the user `owner`.
absl::Status OfAnotherUser(const std::string& path, uid_t owner);

/// Makes a folder if it does not exist, and those around it. One of this user gets the mode that it should have.
/// PermissionDenied if it belongs to another user, is a link that another user has made, or was open to others and
/// holds something of another user. (A link of this user or of root is followed. So is one to a folder of the group.)
/// FailedPrecondition if it is not the group's that is wanted.
absl::StatusOr<OwnFolder> MakeOwnFolder(const std::string& folder, FolderSharing sharing);

/// Returns the owner that the file system gives to what this process makes in a folder. It is another one than the
/// process's user on file systems that have one user for many (NFS with squash, SMB). Returns nullopt if nothing can be
/// made there.
std::optional<uid_t> OwnerOfNewFiles(const std::string& folder);

/// Makes `name` in the folder `parent`, or `name-UID` if the first one belongs to another user. As MakeOwnFolder.
absl::StatusOr<OwnFolder> TakeOwnFolder(const std::string& parent, std::string_view name, FolderSharing sharing);

/// Returns those of the two that exist and may be used. Makes neither; one of this user's is closed to others.
std::vector<OwnFolder> FindOwnFolders(const std::string& parent, std::string_view name, FolderSharing sharing);

/// Returns the first of them. Returns NotFound if there is none.
absl::StatusOr<OwnFolder> FindOwnFolder(const std::string& parent, std::string_view name, FolderSharing sharing);

/// Returns PermissionDenied unless the open file belongs to this user, or to the group that shares the folder.
absl::Status CheckOwnFile(int fd, const std::string& path, const OwnFolder& folder);

/// Opens a file in the folder, as open(). It follows no link, and closes on exec; a new file has the folder's mode.
/// Errors are those of the system, and of CheckOwnFile. With O_TRUNC the file is cut only after that check.
absl::StatusOr<UniqueFd> OpenOwnFile(const OwnFolder& folder, const std::string& path, int flags);

/// Returns PermissionDenied if a path that exists belongs to another user than this one and root.
absl::Status CheckNotOfAnotherUser(const std::string& path);

}  // namespace millrace
