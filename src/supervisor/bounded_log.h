#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// Represents a file that keeps the newest output, between a half of `max_bytes` and all of it. It grows up to a half
/// of `max_bytes`. Then it is renamed to PATH.1, in place of an earlier one, and begun again. Not thread-safe.
class BoundedLog {
 public:
  /// Makes the file and its folders. AlreadyExists if it exists.
  static absl::StatusOr<std::unique_ptr<BoundedLog>> Make(const std::string& path, uint64_t max_bytes);

  /// After an error nothing more is written.
  absl::Status Append(std::string_view text);
  const std::string& path() const { return path_; }

 private:
  BoundedLog(std::string path, uint64_t max_bytes, UniqueFd fd)
      : path_(std::move(path)), half_bytes_(max_bytes / 2), fd_(std::move(fd)) {}
  absl::Status Turn();

  const std::string path_;
  const uint64_t half_bytes_;
  UniqueFd fd_;
  uint64_t size_ = 0;
};

}  // namespace millrace
