#pragma once

#include <string>

#include "base/within.h"

/// If a link below a served folder leads out of it, its target does not exist for clients.

namespace millrace {

/// Opens the folder `path`, which begins with `root` and '/', as a place (O_PATH), and makes the folders that are
/// missing. Empty, with errno, if that fails or a link leads out of `root` (ELOOP); nothing is made out there.
UniqueFd MakeFolderWithin(const std::string& root, const std::string& path);

}  // namespace millrace
