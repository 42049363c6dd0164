#pragma once

#include <string>

#include "base/status.h"
#include "inspect/report.h"

namespace millrace::cli {

/// One JSON object in one line. DataLoss when the index is damaged.
absl::StatusOr<std::string> InspectJson(const InspectReport& report);

/// The same for people.
absl::StatusOr<std::string> InspectText(const InspectReport& report);

}  // namespace millrace::cli
