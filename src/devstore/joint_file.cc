#include "devstore/joint_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/crypto.h"
#include "devstore/file_content.h"
#include "devstore/s3_error.h"
#include "devstore/sidecar.h"

namespace millrace {

namespace {

/// Farther on some file systems have no room in a file, so that a part alone would do better.
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

bool LinkInto(const std::string& folder, const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return true;
  // The folder is made when its first file is, and this may be that.
  return errno == ENOENT && MakeFolders(folder).ok() && link(from.c_str(), to.c_str()) == 0;
}

class PlaceBlobWriter final : public BlobWriter {
 public:
  explicit PlaceBlobWriter(std::shared_ptr<JointPlace> place) : place_(std::move(place)) {}

  absl::Status Append(ByteSpan bytes) override {
    if (bytes.size() > place_->bytes() - size_) {
      return S3Error(S3Code::kInternalError, "a part is longer than was announced");
    }
    RETURN_IF_ERROR(WriteAt(place_->fd(), bytes, place_->offset() + size_, place_->file().path()));
    size_ += bytes.size();
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Content>> Finish() override {
    return std::make_shared<FileContent>(std::move(place_), size_);
  }

 private:
  std::shared_ptr<JointPlace> place_;
  uint64_t size_ = 0;
};

}  // namespace

std::shared_ptr<JointPlace> JointFile::Claim(const std::shared_ptr<JointFile>& file, int number, uint64_t bytes) {
  std::lock_guard lock(file->mutex_);
  if (file->sealed_ || file->places_.contains(number)) return nullptr;
  // The first says how long parts are; should it be the last one, shorter, the others do not fit.
  const uint64_t place_bytes = file->places_.empty() ? bytes : file->place_bytes_;
  if (number < 1 || bytes > place_bytes || place_bytes == 0) return nullptr;
  const auto before = static_cast<uint64_t>(number - 1);
  if (before >= kMaxBytes / place_bytes) return nullptr;
  UniqueFd fd(open(file->path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return nullptr;
  file->place_bytes_ = place_bytes;
  file->places_.insert(number);
  return std::make_shared<JointPlace>(file, number, before * place_bytes, bytes, std::move(fd));
}

void JointFile::Seal() {
  std::lock_guard lock(mutex_);
  sealed_ = true;
}

std::shared_ptr<JointPlace> JointFile::Restore(const std::shared_ptr<JointFile>& file, int number, uint64_t offset) {
  std::lock_guard lock(file->mutex_);
  file->places_.insert(number);
  return std::make_shared<JointPlace>(file, number, offset, 0, UniqueFd(-1));
}

std::shared_ptr<Content> JointFile::Link(const std::string& folder, size_t parts, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (places_.size() != parts) return nullptr;
  auto file = std::make_shared<const UniqueFd>(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  struct stat stat;
  if (!*file || fstat(file->get(), &stat) != 0) return nullptr;
  sealed_ = true;
  // Unless it is linked already, by a request that completes the upload as well: then it may be an object's, and stays
  // as it is.
  if (stat.st_nlink == 1) {
    // A part that failed may have left something behind the last one. The object is as new as its completion.
    if (static_cast<uint64_t>(stat.st_size) != bytes && ftruncate(file->get(), static_cast<off_t>(bytes)) != 0) {
      return nullptr;
    }
    futimens(file->get(), nullptr);
  } else if (static_cast<uint64_t>(stat.st_size) != bytes) {
    return nullptr;
  }
  std::string path = fmt::format("{}/{}", folder, RandomHex(12));
  if (!LinkInto(folder, path_, path)) return nullptr;
  return std::make_shared<FileContent>(std::move(file), std::move(path), bytes);
}

JointPlace::~JointPlace() {
  if (!fd_) return;
  // Where this cannot be done, the space goes with the upload.
  if (bytes_ > 0) {
    fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
              static_cast<off_t>(bytes_));
  }
  std::lock_guard lock(file_->mutex_);
  file_->places_.erase(number_);
}

std::unique_ptr<BlobWriter> NewPlaceBlob(std::shared_ptr<JointPlace> place) {
  return std::make_unique<PlaceBlobWriter>(std::move(place));
}

std::shared_ptr<Content> LinkJointFile(const std::string& folder,
                                       const std::vector<std::shared_ptr<const Content>>& contents) {
  JointFile* joint = nullptr;
  uint64_t bytes = 0;
  for (const auto& content : contents) {
    const JointPlace* place = static_cast<const FileContent&>(*content).place().get();
    if (place == nullptr || place->offset() != bytes || (joint != nullptr && joint != &place->file())) return nullptr;
    joint = &place->file();
    bytes += content->size();
  }
  return joint == nullptr ? nullptr : joint->Link(folder, contents.size(), bytes);
}

}  // namespace millrace
