#include "store/s3_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "store/completion.h"

namespace millrace {

namespace {

constexpr uint64_t kFirstPart = 8 << 20;
constexpr uint64_t kLargestPart = 1 << 30;
constexpr int kPartsPerSize = 1000;
constexpr uint64_t kWriterBytesInFlight = 32 << 20;

}  // namespace

uint64_t PartSize(int number) {
  return std::min(kLargestPart, kFirstPart << ((number - 1) / kPartsPerSize));
}

int PartsInFlight(uint64_t part_size) {
  return static_cast<int>(std::clamp<uint64_t>(kWriterBytesInFlight / part_size, 2, 4));
}

S3Writer::S3Writer(S3Client& client, std::string bucket, std::string key, PutOptions options)
    : client_(client),
      bucket_(std::move(bucket)),
      key_(std::move(key)),
      options_(std::move(options)),
      upload_(client_, bucket_, key_, options_) {}

std::string S3Writer::Uri() const {
  return fmt::format("s3://{}/{}", bucket_, key_);
}

Buffer S3Writer::TakeBuffer(uint64_t size) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(spare_, [size](const Buffer& buffer) { return buffer.size() != size; });
    if (!spare_.empty()) {
      Buffer buffer = std::move(spare_.back());
      spare_.pop_back();
      return buffer;
    }
  }
  return Buffer(size);
}

absl::Status S3Writer::Append(ByteSpan bytes) {
  while (!bytes.empty()) {
    // A full part is sent only when more follows: an object of one part is a plain PUT.
    if (part_.size() > 0 && filled_ == part_.size()) RETURN_IF_ERROR(StartPart());
    if (part_.size() == 0) {
      const int number = static_cast<int>(parts_) + 1;
      const uint64_t size = PartSize(number);
      if (number > kMaxParts) {
        return status_ = absl::ResourceExhaustedError(
                   fmt::format("{}: is too large for S3: {} are written and {} parts used up", Uri(),
                               FormatSize(written_), kMaxParts));
      }
      RETURN_IF_ERROR(status_ = upload_.WaitFor(PartsInFlight(size)));
      part_ = TakeBuffer(size);
      filled_ = 0;
    }
    const size_t take = std::min(bytes.size(), part_.size() - filled_);
    std::memcpy(part_.data() + filled_, bytes.data(), take);
    filled_ += take;
    written_ += take;
    bytes = bytes.subspan(take);
  }
  return absl::OkStatus();
}

absl::Status S3Writer::StartPart() {
  RETURN_IF_ERROR(status_ = upload_.WaitFor(PartsInFlight(part_.size()) - 1));
  if (!upload_.created()) RETURN_IF_ERROR(status_ = upload_.Create());
  const ByteSpan body = part_.span().first(filled_);
  upload_.Send(parts_++, body, [this, part = std::move(part_)](const absl::Status&) mutable {
    std::lock_guard lock(mutex_);
    spare_.push_back(std::move(part));
  });
  part_ = Buffer();
  filled_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<ObjectInfo> S3Writer::PutWhole() {
  Completion<absl::StatusOr<ObjectInfo>> put;
  client_.Put(bucket_, key_, part_.span().first(filled_), options_, put.Callback());
  ASSIGN_OR_RETURN(ObjectInfo info, put.Wait());
  info.key = key_;
  info.size = written_;
  return info;
}

absl::StatusOr<ObjectInfo> S3Writer::Commit() {
  RETURN_IF_ERROR(status_);
  if (!upload_.created()) return PutWhole();
  if (filled_ > 0) RETURN_IF_ERROR(StartPart());
  return upload_.Complete();
}

}  // namespace millrace
