#pragma once

#include <optional>
#include <string_view>

#include "absl/time/time.h"

namespace millrace {

/// Parses "Sun, 06 Nov 1994 08:49:37 GMT"; returns nullopt when it is not such a date. The two older forms of HTTP are
/// not read.
std::optional<absl::Time> ParseHttpDate(std::string_view text);

}  // namespace millrace
