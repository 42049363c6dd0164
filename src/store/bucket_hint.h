#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Returns a NotFound error with a hint added, if one of `uris` looks like a bucket without its "s3://". Other errors
/// stay as they are.
absl::Status HintAtS3(absl::Status status, const std::vector<std::string>& uris);

template <typename T>
absl::StatusOr<T> HintAtS3(absl::StatusOr<T> value, const std::vector<std::string>& uris) {
  return value.ok() ? std::move(value) : HintAtS3(value.status(), uris);
}

}  // namespace millrace
