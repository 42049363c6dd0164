#pragma once

#include <string>

#include "base/status.h"
#include "pipeline/loader.h"

namespace millrace::cli {

/// What `feed --explain` prints: JSON in one line, or text.
absl::StatusOr<std::string> ExplainFeed(const Source& source, const LoaderOptions& options, bool json);

}  // namespace millrace::cli
