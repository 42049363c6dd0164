#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"

/// Symbolic links below a folder may lead out of it: to files of the user that runs this program, which others must not
/// reach by it. The checks look at what was opened, so a link that changes meanwhile cannot deceive them.

namespace millrace {

/// The path of an open file or folder without links; empty if the system does not tell (/proc is not mounted).
std::string RealPathOf(const UniqueFd& file);

/// Whether an open file or folder lies in `root`, a path by RealPathOf, or is `root`.
bool LiesWithin(const UniqueFd& file, const std::string& root);

/// As open(path, flags) of what exists, but only if it lies in one of the folders `within`, or is one of them, after
/// all links are followed. Nothing else is opened for reading, not even for a moment. Empty, with errno, if that fails;
/// EXDEV if a link leads out. The folders are paths without links.
UniqueFd OpenWithin(const std::vector<std::string>& within, const std::string& path, int flags);

}  // namespace millrace
