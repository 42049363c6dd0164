#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"

/// Symbolic links below a folder may lead out of it: to files of the user that runs this program, which others must not
/// reach by it. The checks look at the opened file, so a link that changes meanwhile cannot deceive them.

namespace millrace {

/// Returns the path of an open file or folder without links; empty if the system does not say (/proc is not mounted).
std::string RealPathOf(const UniqueFd& file);

/// Returns true if an open file or folder is in `root`, a path by RealPathOf, or is `root`. Returns false if either
/// path is unknown.
bool LiesWithin(const UniqueFd& file, const std::string& root);

/// Opens an existing file or folder, as open(path, flags). It must be in one of the folders `within`, or be one of
/// them, after all links are followed. Nothing else is opened for reading, not even for a moment. Empty, with
/// errno, if that fails; EXDEV if a link leads out. The folders are paths without links.
UniqueFd OpenWithin(const std::vector<std::string>& within, const std::string& path, int flags);

}  // namespace millrace
