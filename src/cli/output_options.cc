#include "cli/output_options.h"

#include <cstdlib>

#include "cli/console.h"

namespace millrace::cli {

void AddOutputOptions(const Command& below, OutputOptions* options, bool runs_program) {
  const Command command = below.Under("Output");
  command.AddFlag(runs_program ? "--quiet" : "-q,--quiet", &options->quiet, "No progress, and only errors in the log");
  command.AddFlag(runs_program ? "--verbose" : "-v,--verbose", &options->verbose,
                  "The same as --log-level debug: log each request");
  command.AddFlag("--no-progress", &options->no_progress,
                  "No line of progress on a terminal; files and pipes never get one");
  command.Add("--log-level", &options->log_level, "Level of the log on stderr, instead of MILLRACE_LOG")
      .Words({"debug", "info", "warning", "error", "off"});
}

absl::Status ApplyOutputOptions(const OutputOptions& options) {
  if (static_cast<int>(options.quiet) + static_cast<int>(options.verbose) +
          static_cast<int>(options.log_level.has_value()) >
      1) {
    return UsageError("only one of --quiet, --verbose and --log-level can be given: each sets the level of the log");
  }
  if (options.quiet) setenv("MILLRACE_LOG", "error", 1);
  if (options.verbose) setenv("MILLRACE_LOG", "debug", 1);
  if (options.log_level) setenv("MILLRACE_LOG", options.log_level->c_str(), 1);
  if (options.quiet || options.no_progress) setenv("MILLRACE_PROGRESS", "off", 1);
  return absl::OkStatus();
}

}  // namespace millrace::cli
