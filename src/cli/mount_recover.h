#pragma once

#include <string>

#include "base/status.h"

namespace millrace::cli {

/// Prints the files that mounts which have ended have left in their staging folders below `folder`, and how to get
/// them to the store.
absl::Status PrintLeftFiles(const std::string& folder);

}  // namespace millrace::cli
