#pragma once

#include <fmt/format.h>

#include <utility>

#include "absl/strings/cord.h"
#include "base/status.h"

/// This header is for errors of the command line. `AsUsage(ParseUri(text).status())` marks an error as wrong usage,
/// whatever the data are; the program then ends with exit status 2.

namespace millrace {

inline constexpr const char* kUsageMark = "millrace/usage";

/// Marks an error. OK stays OK.
inline absl::Status AsUsage(absl::Status status) {
  if (!status.ok()) status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

template <typename T>
absl::StatusOr<T> AsUsage(absl::StatusOr<T> value) {
  return value.ok() ? std::move(value) : AsUsage(value.status());
}

/// Returns InvalidArgument, as wrong usage: UsageError("--rate {} is negative", rate).
template <typename... Args>
absl::Status UsageError(fmt::format_string<Args...> format, Args&&... args) {
  return AsUsage(absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...)));
}

inline bool IsUsage(const absl::Status& status) {
  return status.GetPayload(kUsageMark).has_value();
}

}  // namespace millrace
