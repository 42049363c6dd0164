#include "devstore/file_content.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/crypto.h"
#include "devstore/s3_error.h"
#include "devstore/sidecar.h"

namespace millrace {

FileContent::~FileContent() {
  if (temporary_) unlink(path_.c_str());
}

absl::StatusOr<std::shared_ptr<const UniqueFd>> FileContent::Open() const {
  if (file_) return file_;
  auto file = std::make_shared<const UniqueFd>(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!*file) return FileError(errno, "opening", path_);
  return file;
}

absl::Status FileContent::Read(uint64_t offset, MutableByteSpan into) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const UniqueFd> file, Open());
  while (!into.empty()) {
    const ssize_t n = pread(file->get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "reading", path_);
    if (n == 0) return S3Error(s3code::kInternalError, "a file shrank while it was read");
    offset += static_cast<uint64_t>(n);
    into = into.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

void FileContent::AppendSteps(ByteRange range, std::vector<ReplyStep>* out) const {
  if (range.length > 0) out->push_back(SendFile{file_, range});
}

namespace {

/// Writes all the bytes from `offset` on; `path` is for the error.
absl::Status WriteAt(int fd, ByteSpan bytes, uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "writing", path);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

class FileBlobWriter final : public BlobWriter {
 public:
  FileBlobWriter(std::shared_ptr<const UniqueFd> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  ~FileBlobWriter() override {
    if (!path_.empty()) unlink(path_.c_str());
  }

  absl::Status Append(ByteSpan bytes) override {
    RETURN_IF_ERROR(WriteAt(file_->get(), bytes, size_, path_));
    size_ += bytes.size();
    return absl::OkStatus();
  }

  /// Counts bytes that came into the file in another way.
  void Count(uint64_t bytes) { size_ += bytes; }
  uint64_t size() const { return size_; }

  absl::StatusOr<std::shared_ptr<Content>> Finish() override {
    return std::make_shared<FileContent>(std::move(file_), std::exchange(path_, ""), size_);
  }

 private:
  std::shared_ptr<const UniqueFd> file_;
  std::string path_;
  uint64_t size_ = 0;
};

struct NewFile {
  std::string path;
  UniqueFd fd;
};

absl::StatusOr<NewFile> CreateIn(const std::string& folder) {
  std::string path = fmt::format("{}/{}", folder, RandomHex(12));
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  UniqueFd fd(open(path.c_str(), kFlags, 0666));
  if (!fd && errno == ENOENT) {
    RETURN_IF_ERROR(MakeFolders(folder));
    fd = UniqueFd(open(path.c_str(), kFlags, 0666));
  }
  if (!fd) return FileError(errno, "creating", path);
  return NewFile{std::move(path), std::move(fd)};
}

// Copies a content into a file, from an offset on. False when the file system cannot do that by itself.
absl::StatusOr<bool> CopyInKernel(const FileContent& from, int to, uint64_t to_offset) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const UniqueFd> file, from.Open());
  off_t at = 0;
  auto to_at = static_cast<off_t>(to_offset);
  for (uint64_t left = from.size(); left > 0;) {
    const ssize_t n = copy_file_range(file->get(), &at, to, &to_at, left, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && left == from.size() && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
      return false;
    if (n < 0) return FileError(errno, "copying", from.path());
    if (n == 0) return S3Error(s3code::kInternalError, "a file shrank while it was read");
    left -= static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlobWriter>> NewFileBlob(const std::string& folder) {
  ASSIGN_OR_RETURN(NewFile file, CreateIn(folder));
  return std::make_unique<FileBlobWriter>(std::make_shared<const UniqueFd>(std::move(file.fd)), std::move(file.path));
}

absl::StatusOr<std::shared_ptr<Content>> JoinFiles(const std::string& folder,
                                                   const std::vector<std::shared_ptr<const Content>>& contents) {
  constexpr size_t kStep = size_t{1} << 20;
  ASSIGN_OR_RETURN(NewFile file, CreateIn(folder));
  const int fd = file.fd.get();
  FileBlobWriter writer(std::make_shared<const UniqueFd>(std::move(file.fd)), std::move(file.path));
  std::vector<std::byte> buffer;
  for (const auto& content : contents) {
    ASSIGN_OR_RETURN(const bool copied, CopyInKernel(static_cast<const FileContent&>(*content), fd, writer.size()));
    if (copied) {
      writer.Count(content->size());
      continue;
    }
    buffer.resize(kStep);
    for (uint64_t at = 0; at < content->size();) {
      const MutableByteSpan piece(buffer.data(), static_cast<size_t>(std::min<uint64_t>(kStep, content->size() - at)));
      RETURN_IF_ERROR(content->Read(at, piece));
      RETURN_IF_ERROR(writer.Append(piece));
      at += piece.size();
    }
  }
  return writer.Finish();
}

}  // namespace millrace
