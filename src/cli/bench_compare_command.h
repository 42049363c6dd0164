#pragma once

#include "cli/command_line.h"

namespace millrace::cli {

/// Adds `compare` below `bench`.
void AddBenchCompare(Command bench);

}  // namespace millrace::cli
