#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/own_folder.h"
#include "base/status.h"

namespace millrace {

/// Holds the bytes of a file, for reading. A small file is read into memory: it may be cut short or changed afterwards.
/// A larger one is mapped, and its bytes are read when they are accessed. If such a file is cut short meanwhile, or its
/// disk fails, the kernel kills the process, and a handler of SIGBUS says before which file it was. So this is for
/// files that are replaced by renaming, and never changed. Move-only.
class MappedFile {
 public:
  static constexpr uint64_t kMaxReadBytes = uint64_t{16} << 20;

  /// Returns NotFound, PermissionDenied, or Unavailable with the system's reason. With `within`, a file outside these
  /// folders is not found (base/within.h). A file of up to `most_read` bytes is read.
  static absl::StatusOr<MappedFile> Open(const std::string& path, const std::vector<std::string>& within = {},
                                         uint64_t most_read = kMaxReadBytes);
  /// Opens a file in a folder of the program's own. Returns PermissionDenied for a file of another user; a link is not
  /// followed.
  static absl::StatusOr<MappedFile> OpenOwn(const std::string& path, const OwnFolder& folder,
                                            uint64_t most_read = kMaxReadBytes);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), memory_(std::move(other.memory_)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
    return *this;
  }

  ByteSpan bytes() const { return bytes_; }

 private:
  static absl::StatusOr<MappedFile> Read(const UniqueFd& file, const std::string& path, uint64_t most_read);
  explicit MappedFile(ByteSpan bytes, std::unique_ptr<std::byte[]> memory = nullptr)
      : bytes_(bytes), memory_(std::move(memory)) {}

  ByteSpan bytes_;
  std::unique_ptr<std::byte[]> memory_;  // of one that was read
};

}  // namespace millrace
