#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

#include "s3/object.h"

/// This header has what is particular to objects that are files: which keys they can have, and how their versions are
/// distinguished.

namespace millrace {

/// Returns InvalidArgument if a folder cannot hold the key. Such a key is absolute, or has an empty component, "." or
/// "..", a component of more than 255 bytes, or a name reserved for temporary files.
absl::Status CheckFileKey(std::string_view uri, std::string_view key);

/// Does what stat() does. If there are folders `within`, the error is EXDEV for files outside them (base/within.h).
int StatWithin(const std::vector<std::string>& within, const std::string& path, struct stat* info);

/// Returns ErrnoStatus, or PermissionDenied with its remedy for EXDEV of OpenWithin and StatWithin.
absl::Status ReadErrno(int error, std::string_view uri, std::string_view operation);

/// Makes the ETag of size, modification time, inode and the time of the last change of any of these (ctime). It changes
/// whenever a file is replaced or written, also by a program that sets the modification time back (cp -p, tar -x, rsync
/// --inplace). It changes, too, if the file is renamed, or gets another mode, owner or hard link.
std::string FileEtag(const struct stat& info);
ObjectInfo FileInfo(std::string key, const struct stat& info);

}  // namespace millrace
