#pragma once

#include <memory>
#include <string>

#include "devstore/storage.h"

namespace millrace {

/// Serves a folder: its sub-folders are buckets, the files below them objects, keys their paths. What others put there
/// is served as well. Symbolic links that they made are followed within ROOT; what one leads to outside does not exist
/// for clients, and a key that would have to be written through one is kept as one that no path can hold. Everything
/// else lies in ROOT/.devstore: ETags and metadata of what was written through devstore, objects whose keys no path can
/// hold ("a//b", "..", "dir/", a key that is also a folder), unfinished uploads. NotFound if `root` is not a folder.
absl::StatusOr<std::unique_ptr<Storage>> OpenDirStorage(const std::string& root);

}  // namespace millrace
