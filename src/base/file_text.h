#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace millrace {

/// Returns the first `max_bytes` of a file, or all of it. It also reads files of /proc, whose size the system does not
/// know. To refuse a file that is too large, the caller asks for a byte more than it takes. Returns NotFound, "PATH
/// cannot be opened"; Unknown, "PATH cannot be read".
absl::StatusOr<std::string> ReadFileText(const std::string& path, size_t max_bytes = SIZE_MAX);

}  // namespace millrace
