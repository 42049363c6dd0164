#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "cli/command_line.h"

/// Options that all commands have.

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

/// --endpoint-url, --profile, --region and --no-sign-request, for all commands at once: what was given on the command
/// line.
struct S3Options {
  std::optional<std::string> endpoint_url;
  std::optional<std::string> profile;
  std::optional<std::string> region;
  bool anonymous = false;
};

/// Adds them to a command.
void AddS3Options(const Command& command, S3Options* options);

/// Sets AWS_ENDPOINT_URL_S3, AWS_PROFILE, AWS_REGION and MILLRACE_S3_ANONYMOUS, so that they count for whatever the
/// command does and starts. With a profile, the keys and the web identity in the environment are removed, which would
/// win over it. A usage error names the option. Not thread-safe: call it before there are threads.
absl::Status ApplyS3Options(const S3Options& options);

}  // namespace millrace::cli
