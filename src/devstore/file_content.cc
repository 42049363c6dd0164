#include "devstore/file_content.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/crypto.h"
#include "devstore/s3_error.h"
#include "devstore/sidecar.h"

namespace millrace {

FileContent::~FileContent() {
  if (temporary_) unlink(path_.c_str());
}

absl::Status FileContent::Read(uint64_t offset, MutableByteSpan into) const {
  std::shared_ptr<const UniqueFd> file = file_;
  if (!file) {
    file = std::make_shared<const UniqueFd>(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!*file) return FileError(errno, "opening", path_);
  }
  while (!into.empty()) {
    const ssize_t n = pread(file->get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "reading", path_);
    if (n == 0) return S3Error(S3Code::kInternalError, "a file shrank while it was read");
    offset += static_cast<uint64_t>(n);
    into = into.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

void FileContent::AppendSteps(ByteRange range, std::vector<ReplyStep>* out) const {
  if (range.length > 0) out->push_back(SendFile{file_, range});
}

namespace {

class FileBlobWriter final : public BlobWriter {
 public:
  FileBlobWriter(std::shared_ptr<const UniqueFd> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  ~FileBlobWriter() override {
    if (!path_.empty()) unlink(path_.c_str());
  }

  absl::Status Append(ByteSpan bytes) override {
    size_ += bytes.size();
    while (!bytes.empty()) {
      const ssize_t n = write(file_->get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError(errno, "writing", path_);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Content>> Finish() override {
    return std::make_shared<FileContent>(std::move(file_), std::exchange(path_, ""), size_);
  }

 private:
  std::shared_ptr<const UniqueFd> file_;
  std::string path_;
  uint64_t size_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BlobWriter>> NewFileBlob(const std::string& folder) {
  std::string path = fmt::format("{}/{}", folder, RandomHex(12));
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  int fd = open(path.c_str(), kFlags, 0666);
  if (fd < 0 && errno == ENOENT) {
    RETURN_IF_ERROR(MakeFolders(folder));
    fd = open(path.c_str(), kFlags, 0666);
  }
  if (fd < 0) return FileError(errno, "creating", path);
  return std::make_unique<FileBlobWriter>(std::make_shared<const UniqueFd>(fd), std::move(path));
}

}  // namespace millrace
