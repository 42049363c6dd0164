#pragma once

#include <string>

#include "base/status.h"
#include "inspect/report.h"

namespace millrace::cli {

/// Returns one JSON object in one line. DataLoss when the index is damaged.
absl::StatusOr<std::string> InspectJson(const InspectReport& report);

/// Returns the same for people.
absl::StatusOr<std::string> InspectText(const InspectReport& report);

}  // namespace millrace::cli
