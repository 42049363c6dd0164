#include "cli/common_options.h"

#include <fmt/format.h>

#include <cstdlib>

#include "aws/endpoint.h"
#include "aws/settings.h"
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

void AddS3Options(const Command& below, S3Options* options) {
  const Command command = below.Under("S3 (docs/s3.md)");
  command.Add("--endpoint-url URL", &options->endpoint_url, "A store other than AWS, instead of AWS_ENDPOINT_URL");
  command.Add("--profile NAME", &options->profile,
              "Settings and credentials of this profile, instead of AWS_PROFILE and keys in the environment");
  command.Add("--region NAME", &options->region, "Instead of AWS_REGION");
  command.AddFlag("--no-sign-request", &options->anonymous, "Without credentials, for public data");
}

absl::Status ApplyS3Options(const S3Options& options) {
  if (options.endpoint_url) {
    RETURN_IF_ERROR(AsUsage(Annotate(ParseEndpointUrl(*options.endpoint_url).status(), "--endpoint-url")));
    setenv("AWS_ENDPOINT_URL_S3", options.endpoint_url->c_str(), 1);
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false", 1);  // whatever the profile says
  }
  if (options.profile) {
    if (options.profile->empty()) return UsageError("--profile: the name is empty");
    setenv("AWS_PROFILE", options.profile->c_str(), 1);
    for (const char* name : kIdentityVariables) unsetenv(name);
  }
  if (options.region) {
    if (!PlausibleRegion(*options.region)) {
      return UsageError("--region: '{}' is not a region's name", *options.region);
    }
    setenv("AWS_REGION", options.region->c_str(), 1);
  }
  if (options.anonymous) setenv("MILLRACE_S3_ANONYMOUS", "1", 1);
  return absl::OkStatus();
}

}  // namespace millrace::cli
