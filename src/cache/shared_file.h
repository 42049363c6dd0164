#pragma once

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

/// Files of a cache's folder by which its users know of each other: they lock them, and write small numbers there.
/// Users may remove the folder at any time.

namespace millrace {

/// Opens the file, which is made if it does not exist, and its folder too.
absl::StatusOr<UniqueFd> OpenShared(const std::string& path);

/// Whether the open file is the one at the path.
bool IsAt(int fd, const std::string& path);

/// Whether it was removed, so that other users may have made another one at the path. One whose file system was
/// unmounted was not: nothing is made in the folder that is there then.
bool IsGone(int fd, const std::string& path);

/// Opens it again if it is gone. Returns whether `fd` is another file now; if that fails, it stays as it is.
bool OpenAgainIfGone(const std::string& path, UniqueFd* fd);

}  // namespace millrace
