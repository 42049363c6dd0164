#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "cli/command_line.h"

namespace millrace::cli {

/// --quiet, --verbose, --no-progress and --log-level as the command line gives them, for all commands at once.
struct OutputOptions {
  bool quiet = false;
  bool verbose = false;
  bool no_progress = false;
  std::optional<std::string> log_level;
};

/// Adds them to a command. If it `runs_program`, -q and -v are not its own, since a program may have them.
void AddOutputOptions(const Command& command, OutputOptions* options, bool runs_program = false);

/// Sets MILLRACE_LOG and MILLRACE_PROGRESS, which also hold for the programs that the command starts. A usage error
/// says which options contradict one another. Not thread-safe: call it before there are threads, and before the first
/// line of the log.
absl::Status ApplyOutputOptions(const OutputOptions& options);

}  // namespace millrace::cli
