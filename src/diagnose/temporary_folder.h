#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace millrace {

/// Is a new folder for temporary files, removed with its contents by the destructor.
class TemporaryFolder {
 public:
  /// Makes it below $TMPDIR, or /tmp.
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Make();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace millrace
