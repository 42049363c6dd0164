#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

/// The values of options, and the messages for wrong ones.

namespace millrace::cli {

/// The size in bytes that `option` was given ("64MiB"), greater than 0; a usage error names the option.
absl::StatusOr<uint64_t> TakeSize(std::string_view option, std::string_view text);

/// The time that `option` was given ("30s", "500ms", "2m", or a number of seconds), up to a year; a usage error names
/// the option.
absl::StatusOr<std::chrono::nanoseconds> TakeDuration(std::string_view option, const std::string& text);

/// What `--outage-limit SECONDS` was given, for Stores; a usage error if it is not 0 to a week.
constexpr double kOutageLimitSeconds = 600;
constexpr const char* kOutageLimitHelp =
    "Seconds to wait for S3 if it has answered before and stops; 0: fail after some attempts";
absl::StatusOr<std::chrono::nanoseconds> TakeOutageLimit(double seconds);

/// For NotFound: the same error, with a hint if one of `uris` looks like a bucket without its "s3://". Other errors
/// stay as they are.
absl::Status HintAtS3(absl::Status status, const std::vector<std::string>& uris);

}  // namespace millrace::cli
