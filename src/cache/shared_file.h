#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "base/unique_fd.h"

/// Users of a cache's folder know of each other by these files: they lock them, and write small numbers there. Users
/// may remove the folder at any time.
///
/// A user who may read a file may lock it, and a user who may write to it may choose the bytes that are read. So the
/// folder and its files are one user's alone (0700, 0600). If the environment variable MILLRACE_CACHE_GROUP names a
/// group, a folder that is made is this group's (2770, 0660), and one that is there must be. A folder or file of
/// another user is not used.

namespace millrace {

/// A process waits so long for a lock of another one, which holds it for moments.
inline constexpr std::chrono::milliseconds kLockPatience{10'000};

/// Makes the folder of a cache if it does not exist, and those above it. PermissionDenied if it is of another user,
/// FailedPrecondition if it is not the group's that is wanted.
absl::Status MakeCacheFolder(const std::string& folder);

/// Makes a folder within that of a cache if it does not exist; returns the mode of files in it.
absl::StatusOr<mode_t> MakeFolderInCache(const std::string& folder);

/// Opens the file, which is made if it does not exist, and its folder too. PermissionDenied if it is another user's.
absl::StatusOr<UniqueFd> OpenShared(const std::string& path);

/// Returns PermissionDenied unless the open file belongs to this user, or, in a folder of a group, to the group. One of
/// this user gets the mode that it should have.
absl::Status CheckShared(int fd, const std::string& path);

inline bool NeverGetsOn() {
  return false;
}

/// Calls `lock`, which returns 0 or sets errno as a lock does that does not wait, until it succeeds. DeadlineExceeded
/// if another process holds the lock for `patience`, counted again whenever `gets_on` says that it makes progress;
/// otherwise the system's error.
absl::Status LockInTime(const std::string& path, std::chrono::milliseconds patience, absl::FunctionRef<int()> lock,
                        absl::FunctionRef<bool()> gets_on = NeverGetsOn);

/// Returns true if the open file is the one at the path.
bool IsAt(int fd, const std::string& path);

/// Returns true if it was removed, so that other users may have made another one at the path. A file whose file system
/// was unmounted was not: nothing is made in the folder that is there then.
bool IsGone(int fd, const std::string& path);

/// Opens it again if it is gone. Returns whether `fd` is another file now; if that fails, it stays as it is.
bool OpenAgainIfGone(const std::string& path, UniqueFd* fd);

}  // namespace millrace
