#pragma once

#include <memory>
#include <string>
#include <vector>

#include "devstore/storage.h"

namespace millrace {

/// Holds a file's bytes, by an open descriptor or, so that many parts need no descriptors, opened for each use.
class FileContent final : public Content {
 public:
  FileContent(std::shared_ptr<const UniqueFd> file, uint64_t size) : file_(std::move(file)), size_(size) {}
  FileContent(std::string path, uint64_t size) : path_(std::move(path)), size_(size) {}
  /// Takes a temporary file, removed with this object unless Keep() was called.
  FileContent(std::shared_ptr<const UniqueFd> file, std::string temporary_path, uint64_t size)
      : file_(std::move(file)), path_(std::move(temporary_path)), temporary_(true), size_(size) {}
  ~FileContent() override;

  uint64_t size() const override { return size_; }
  absl::Status Read(uint64_t offset, MutableByteSpan into) const override;
  /// Call this only with an open descriptor.
  void AppendSteps(ByteRange range, std::vector<ReplyStep>* out) const override;

  /// Returns the descriptor, or one for this use.
  absl::StatusOr<std::shared_ptr<const UniqueFd>> Open() const;
  const UniqueFd& file() const { return *file_; }
  const std::string& path() const { return path_; }
  void Keep() { temporary_ = false; }

 private:
  std::shared_ptr<const UniqueFd> file_;
  std::string path_;
  bool temporary_ = false;
  const uint64_t size_;
};

/// Makes a temporary file in `folder` with the bytes of all these files, one after the other. The kernel copies them,
/// or shares them if the file system can.
absl::StatusOr<std::shared_ptr<Content>> JoinFiles(const std::string& folder,
                                                   const std::vector<std::shared_ptr<const Content>>& contents);

/// Writes a temporary file in `folder`, which is made when it is missing.
absl::StatusOr<std::unique_ptr<BlobWriter>> NewFileBlob(const std::string& folder);

}  // namespace millrace
