#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "store/bucket_hint.h"

/// This file has the values of options, and the messages for wrong ones.

namespace millrace::cli {

/// The size in bytes that `option` was given ("64MiB"), greater than 0; a usage error names the option.
absl::StatusOr<uint64_t> TakeSize(std::string_view option, std::string_view text);

/// The same for an option that may be missing: nothing changes if its text is empty.
absl::Status TakeSize(std::string_view option, std::string_view text, uint64_t* bytes);

/// The same, but 0 is a size, too.
absl::StatusOr<uint64_t> TakeSizeOrZero(std::string_view option, std::string_view text);

/// NotFound if the folder of a file that a long run will write is missing: that is more likely a slip than a wish.
absl::Status CheckFolderOf(std::string_view option, const std::string& path);

/// The value of `--part`: "2/8" is the second of eight, which is 1 of 8 here. A usage error if there are more than
/// `most`.
struct PartOfWork {
  uint64_t part = 0;
  uint64_t parts = 1;
};
absl::StatusOr<PartOfWork> TakePart(std::string_view text, uint64_t most);

/// The time that `option` was given ("30s", "500ms", "2m", or a number of seconds), up to a year; a usage error names
/// the option.
absl::StatusOr<std::chrono::nanoseconds> TakeDuration(std::string_view option, const std::string& text);
/// Returns the same in milliseconds, rounded up.
absl::StatusOr<std::chrono::milliseconds> TakeMilliseconds(std::string_view option, const std::string& text);

/// Converts the value of `--outage-limit SECONDS` for Stores; a usage error if it is not 0 to a week.
constexpr double kOutageLimitSeconds = 600;
constexpr const char* kOutageLimitHelp =
    "Seconds to wait for S3 if it has answered before and stops; 0: fail after some attempts";
absl::StatusOr<std::chrono::nanoseconds> TakeOutageLimit(double seconds);

}  // namespace millrace::cli
