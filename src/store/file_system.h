#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "s3/object.h"

/// What FileStore needs of the operating system: errors, names, descriptors, and files that appear whole.

namespace millrace {

/// The errno of an operation on a file as a status; `operation` is a verb such as "reading". The only such table.
absl::Status ErrnoStatus(int error, std::string_view uri, std::string_view operation);

/// InvalidArgument when a folder cannot hold the key: absolute, an empty component, "." or "..", a component of more
/// than 255 bytes, or a name reserved for temporary files.
absl::Status CheckFileKey(std::string_view uri, std::string_view key);

/// True for names of files that are being written.
bool IsTemporaryName(std::string_view name);

/// Size, modification time and inode: changes whenever a file is replaced or written.
std::string FileEtag(const struct stat& info);
ObjectInfo FileInfo(std::string key, const struct stat& info);

/// Closes its descriptor. Move-only.
class UniqueFd {
 public:
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// A file being written beside its final place. Removed unless committed; a crash leaves a hidden file that listings
/// skip. Not thread-safe.
class TempFile {
 public:
  /// Makes the folders of `path` where they are missing. `uri` names the object in messages.
  static absl::StatusOr<std::unique_ptr<TempFile>> Create(std::string path, std::string uri);
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  /// After an error this and Commit give the same error.
  absl::Status Append(ByteSpan bytes);

  /// Moves the file to its place, durably, and returns what it is now. AlreadyExists when `only_if_absent` and
  /// something is there. Call it once, and Append no more.
  absl::StatusOr<struct stat> Commit(bool only_if_absent);

 private:
  TempFile(std::string path, std::string uri, std::string temporary, UniqueFd fd)
      : path_(std::move(path)), uri_(std::move(uri)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

  absl::Status LinkError(int error) const;

  const std::string path_;
  const std::string uri_;
  const std::string temporary_;
  UniqueFd fd_;
  absl::Status failed_;
  bool exists_ = true;  // the temporary name
};

}  // namespace millrace
