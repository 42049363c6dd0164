#pragma once

#include <string>

#include "base/status.h"

namespace millrace {

/// Returns the secret in a file, without white space around it; "" for no file. Returns NotFound and the like if the
/// file cannot be read, InvalidArgument if it has no secret of 16 to 1,024 printable ASCII characters. Messages do not
/// show it.
absl::StatusOr<std::string> ReadWorkerToken(const std::string& path);

}  // namespace millrace
