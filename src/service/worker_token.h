#pragma once

#include <string>

#include "base/status.h"

namespace millrace {

/// The secret in a file, without white space around it; "" for no file. NotFound and the like (the file cannot be
/// read), InvalidArgument (no secret of 16 to 1,024 printable ASCII characters). Messages do not show it.
absl::StatusOr<std::string> ReadWorkerToken(const std::string& path);

}  // namespace millrace
