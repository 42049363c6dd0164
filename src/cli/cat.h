#pragma once

#include <string>

#include "base/status.h"

namespace millrace::cli {

/// Writes the object, or all that match a pattern, to standard output, in order; or `range` of each ("" for all of it;
/// see ParseRange).
absl::Status WriteObjects(const std::string& uri, const std::string& range);

}  // namespace millrace::cli
