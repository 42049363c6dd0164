#pragma once

#include "cli/command_line.h"

namespace millrace::cli {

/// `millrace cache warm` and `simulate`: what has to do with a plan.
void AddCacheWarm(Command cache);
void AddCacheSimulate(Command cache);

}  // namespace millrace::cli
