#include "cli/usage.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/time/time.h"
#include "base/number.h"
#include "base/size.h"
#include "cli/console.h"

namespace millrace::cli {

namespace {

constexpr std::chrono::hours kMaxDuration{24 * 365};

}  // namespace

absl::StatusOr<uint64_t> TakeSize(std::string_view option, std::string_view text) {
  absl::StatusOr<uint64_t> bytes = ParseSize(text);
  if (bytes.ok() && *bytes == 0) bytes = absl::InvalidArgumentError("it must be positive");
  return bytes.ok() ? bytes : AsUsage(Annotate(bytes.status(), option));
}

absl::Status TakeSize(std::string_view option, std::string_view text, uint64_t* bytes) {
  if (text.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(*bytes, TakeSize(option, text));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> TakeSizeOrZero(std::string_view option, std::string_view text) {
  const absl::StatusOr<uint64_t> bytes = ParseSize(text);
  return bytes.ok() ? bytes : AsUsage(Annotate(bytes.status(), option));
}

absl::Status CheckFolderOf(std::string_view option, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (path.empty() || folder.empty() || std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("{} {}: there is no folder {}; make it first", option, path, folder.string()));
}

absl::StatusOr<PartOfWork> TakePart(std::string_view text, uint64_t most) {
  const size_t slash = text.find('/');
  const std::optional<uint64_t> part = ParseNumber<uint64_t>(text.substr(0, slash));
  const std::optional<uint64_t> parts =
      slash == std::string_view::npos ? std::nullopt : ParseNumber<uint64_t>(text.substr(slash + 1));
  if (!part || !parts || *part < 1 || *part > *parts || *parts > most) {
    return UsageError("--part: '{}' is not I/N such as 2/8, with I from 1 to N and N of at most {}", text, most);
  }
  return PartOfWork{.part = *part - 1, .parts = *parts};
}

absl::StatusOr<std::chrono::nanoseconds> TakeDuration(std::string_view option, const std::string& text) {
  absl::Duration duration;
  if (const std::optional<double> seconds = ParseNumber<double>(text)) {
    duration = absl::Seconds(*seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    duration = -absl::InfiniteDuration();
  }
  if (duration >= absl::ZeroDuration() && duration <= absl::FromChrono(kMaxDuration))
    return absl::ToChronoNanoseconds(duration);
  return UsageError("{}: '{}' is not a time; write 30s, 500ms, 2m or a number of seconds", option, text);
}

absl::StatusOr<std::chrono::milliseconds> TakeMilliseconds(std::string_view option, const std::string& text) {
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, TakeDuration(option, text));
  return std::chrono::ceil<std::chrono::milliseconds>(time);
}

absl::StatusOr<std::chrono::nanoseconds> TakeOutageLimit(double seconds) {
  constexpr double kMaxSeconds = 7 * 24 * 3600;
  if (seconds >= 0 && seconds <= kMaxSeconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  }
  return UsageError("--outage-limit must be 0 to {} seconds", kMaxSeconds);
}

}  // namespace millrace::cli
