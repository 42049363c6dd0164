#pragma once

#include <memory>
#include <string>

#include "devstore/storage.h"

namespace millrace {

/// Serves a folder: its sub-folders are buckets, the files below them objects, keys their paths. What others put there
/// is served as well; symbolic links that they made are followed. Everything else lies in ROOT/.devstore: ETags and
/// metadata of what was written through devstore, objects whose keys no path can hold ("a//b", "..", "dir/", a key that
/// is also a folder), unfinished uploads. InvalidArgument when `root` is no folder.
absl::StatusOr<std::unique_ptr<Storage>> OpenDirStorage(const std::string& root);

}  // namespace millrace
