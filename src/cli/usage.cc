#include "cli/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "absl/time/time.h"
#include "base/size.h"
#include "cli/console.h"
#include "s3/address.h"
#include "store/uri.h"

namespace millrace::cli {

namespace {

constexpr std::chrono::hours kMaxDuration{24 * 365};

// A relative path of which not even the first part is there, and which a bucket may be called. A name with an ending
// and no folder is more likely that of a file.
bool LooksLikeABucket(const std::string& uri) {
  const absl::StatusOr<ParsedUri> parsed = ParseUri(uri);
  if (!parsed.ok() || parsed->scheme != ParsedUri::Scheme::kFile || parsed->path != uri) return false;
  const std::string first = uri.substr(0, uri.find('/'));
  if (!PlausibleBucket(first) || first.front() == '.' || first.front() == '-') return false;
  if (first == uri && first.find('.') != std::string::npos) return false;
  std::error_code ignored;  // what cannot be looked at is there
  return std::filesystem::symlink_status(first, ignored).type() == std::filesystem::file_type::not_found;
}

}  // namespace

absl::StatusOr<uint64_t> TakeSize(std::string_view option, std::string_view text) {
  absl::StatusOr<uint64_t> bytes = ParseSize(text);
  if (bytes.ok() && *bytes == 0) bytes = absl::InvalidArgumentError("it must be positive");
  return bytes.ok() ? bytes : AsUsage(Annotate(bytes.status(), option));
}

absl::StatusOr<std::chrono::nanoseconds> TakeDuration(std::string_view option, const std::string& text) {
  absl::Duration duration;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size()) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    duration = -absl::InfiniteDuration();
  }
  if (duration >= absl::ZeroDuration() && duration <= absl::FromChrono(kMaxDuration))
    return absl::ToChronoNanoseconds(duration);
  return AsUsage(absl::InvalidArgumentError(
      fmt::format("{}: '{}' is not a time; write 30s, 500ms, 2m or a number of seconds", option, text)));
}

absl::StatusOr<std::chrono::nanoseconds> TakeOutageLimit(double seconds) {
  constexpr double kMaxSeconds = 7 * 24 * 3600;
  if (seconds >= 0 && seconds <= kMaxSeconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  }
  return AsUsage(absl::InvalidArgumentError(fmt::format("--outage-limit must be 0 to {} seconds", kMaxSeconds)));
}

absl::Status HintAtS3(absl::Status status, const std::vector<std::string>& uris) {
  if (!absl::IsNotFound(status)) return status;
  const auto bucket = std::find_if(uris.begin(), uris.end(), LooksLikeABucket);
  if (bucket == uris.end()) return status;
  return absl::NotFoundError(fmt::format("{}; for an object store write s3://{}", ToStd(status.message()), *bucket));
}

}  // namespace millrace::cli
