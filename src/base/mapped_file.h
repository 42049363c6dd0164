#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// A file mapped for reading. Its bytes are read when they are accessed. If the file is cut short meanwhile, the
/// process is killed, so this is for files that are replaced and never changed. Move-only.
class MappedFile {
 public:
  /// NotFound, PermissionDenied, or Unavailable with the system's reason. With `within`, what lies in none of these
  /// folders is not found (base/within.h).
  static absl::StatusOr<MappedFile> Open(const std::string& path, const std::vector<std::string>& within = {});
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  ByteSpan bytes() const { return bytes_; }

 private:
  explicit MappedFile(ByteSpan bytes) : bytes_(bytes) {}
  ByteSpan bytes_;
};

}  // namespace millrace
