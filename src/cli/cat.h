#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace millrace::cli {

/// Writes the objects to standard output, in order, and for a pattern all that match it; or `range` of each ("" for all
/// of it; see ParseRange). Ends with the first error; wrong URIs are found before anything is written.
absl::Status WriteObjects(const std::vector<std::string>& uris, const std::string& range);

}  // namespace millrace::cli
