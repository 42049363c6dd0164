#include "cli/s3_options.h"

#include <fmt/format.h>

#include <cstdlib>

#include "aws/endpoint.h"
#include "aws/settings.h"
#include "cli/console.h"

namespace millrace::cli {

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
