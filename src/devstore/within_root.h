#pragma once

#include <string>

#include "base/unique_fd.h"

/// Symbolic links below a served folder may lead out of it: to the files of the user that runs the server. What such a
/// link leads to does not exist for clients. The checks look at what was opened, so a link that changes meanwhile
/// cannot deceive them.

namespace millrace {

/// The path of an open file or folder without links; empty if the system does not tell (/proc is not mounted).
std::string RealPathOf(const UniqueFd& file);

/// Whether an open file or folder lies in `root`, a path by RealPathOf, or is `root`.
bool LiesWithin(const UniqueFd& file, const std::string& root);

/// Opens the folder `path`, which begins with `root` and '/', as a place (O_PATH), and makes the folders that are
/// missing. Empty, with errno, if that fails or a link leads out of `root` (ELOOP); nothing is made out there.
UniqueFd MakeFolderWithin(const std::string& root, const std::string& path);

}  // namespace millrace
