#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace::cli {

/// Replaces a local file so that readers see the old contents or the new ones, whole, also after a kill (temporary file
/// in the same folder, then rename). Not synced to disk: a state file is written often and may lag after a power loss.
absl::Status WriteFileAtomically(const std::string& path, std::string_view contents);

}  // namespace millrace::cli
