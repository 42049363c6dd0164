#pragma once

#include "base/status.h"

namespace millrace {

/// Returns InvalidArgument, with the remedy, if MILLRACE_LOG (base/log.h) is set, but not to a level. A program that
/// can refuse to start calls it first. Without that, an unknown level counts as "warning", and a line on stderr says so
/// once.
absl::Status CheckLogSetting();

}  // namespace millrace
