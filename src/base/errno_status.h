#pragma once

#include <string_view>

#include "base/status.h"

namespace millrace {

/// Returns the errno of a failed operation on a file as a status: "NAME: OPERATION failed: WHY; REMEDY". `operation` is
/// a verb such as "reading".
absl::Status ErrnoStatus(int error, std::string_view name, std::string_view operation);

}  // namespace millrace
