#pragma once

#include <string>

#include "s3/client.h"

namespace millrace {

/// Has the settings of S3 and the source of each, in words. There are no secrets.
struct ExplainedSettings {
  absl::StatusOr<S3Config> config;
  std::string endpoint_from;     // "AWS_ENDPOINT_URL"; "" for AWS's own
  std::string region_from;       // "the profile 'x' in /root/.aws/config"; "" for the default
  std::string credentials_from;  // "" without any
  std::string access_key;        // abbreviated
};

/// Looks where LoadS3Config does (s3/config.h), in the same order.
ExplainedSettings ExplainSettings();

}  // namespace millrace
