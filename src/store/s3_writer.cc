#include "store/s3_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/size.h"
#include "store/checks.h"
#include "store/completion.h"

namespace millrace {

namespace {

constexpr uint64_t kFirstPart = 8 << 20;
constexpr uint64_t kLargestPart = 1 << 30;
constexpr int kPartsPerSize = 1000;
constexpr uint64_t kBytesInFlight = 32 << 20;
// Who gives up, often because the store is gone, is not to wait for it.
constexpr std::chrono::seconds kAbortLimit{5};
constexpr std::chrono::seconds kAnswerLimit{2};

}  // namespace

uint64_t PartSize(int number) {
  return std::min(kLargestPart, kFirstPart << ((number - 1) / kPartsPerSize));
}

int PartsInFlight(uint64_t part_size) {
  return static_cast<int>(std::clamp<uint64_t>(kBytesInFlight / part_size, 2, 4));
}

S3Writer::S3Writer(S3Client& client, std::string bucket, std::string key, PutOptions options)
    : client_(client), bucket_(std::move(bucket)), key_(std::move(key)), options_(std::move(options)) {
  if (const auto kind = client_.upload_checksum()) digest_.emplace(*kind);
  if (options_.stop.stop_possible()) on_stop_.emplace(options_.stop, [this] { stop_.request_stop(); });
}

S3Writer::~S3Writer() {
  // A part that arrives after the abort stays, until it is aborted once more.
  stop_.request_stop();
  {
    std::unique_lock lock(mutex_);
    landed_.wait(lock, [this] { return in_flight_ == 0; });
  }
  if (upload_id_.empty()) return;
  Completion<absl::Status> aborted;
  client_.AbortMultipart(bucket_, key_, upload_id_, aborted.Callback());
  // Beyond the limit it goes on for as long as the client lives.
  const absl::Status status =
      aborted.WaitFor(kAbortLimit) ? aborted.Wait() : absl::UnavailableError("the store does not answer in time");
  if (status.ok() || absl::IsNotFound(status)) return;
  Log(LogLevel::kWarning, "store",
      fmt::format("{}: the parts of an unfinished upload stay in the bucket until it is aborted: {}", Uri(),
                  ToStd(status.message())));
}

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

// Blocks until no more than that many parts are on their way. Gives the first error of all so far.
absl::Status S3Writer::WaitForParts(int at_most) {
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] { return in_flight_ <= at_most; });
  return status_;
}

absl::Status S3Writer::Append(ByteSpan bytes) {
  while (!bytes.empty()) {
    // A full part is sent only when more follows: an object of one part is a plain PUT.
    if (part_.size() > 0 && filled_ == part_.size()) RETURN_IF_ERROR(StartPart());
    if (part_.size() == 0) {
      const int number = static_cast<int>(etags_.size()) + 1;
      const uint64_t size = PartSize(number);
      if (number > kMaxParts) {
        std::lock_guard lock(mutex_);
        return status_ = absl::ResourceExhaustedError(
                   fmt::format("{}: is too large for S3: {} are written and {} parts used up", Uri(),
                               FormatSize(written_), kMaxParts));
      }
      RETURN_IF_ERROR(WaitForParts(PartsInFlight(size)));
      part_ = TakeBuffer(size);
      filled_ = 0;
    }
    const size_t take = std::min(bytes.size(), part_.size() - filled_);
    if (digest_) digest_->Update(bytes.first(take));
    std::memcpy(part_.data() + filled_, bytes.data(), take);
    filled_ += take;
    written_ += take;
    bytes = bytes.subspan(take);
  }
  return absl::OkStatus();
}

absl::Status S3Writer::CreateUpload() {
  Completion<absl::StatusOr<std::string>> created;
  std::stop_source give_up;
  client_.CreateMultipart(bucket_, key_, {.content_type = options_.content_type, .stop = give_up.get_token()},
                          created.Callback());
  // A stop does not cut off an answer that is on its way: without its id the upload could not be aborted.
  while (!created.WaitFor(std::chrono::milliseconds(50))) {
    if (!options_.stop.stop_requested()) continue;
    if (!created.WaitFor(kAnswerLimit)) give_up.request_stop();
    break;
  }
  absl::StatusOr<std::string> id = created.Wait();
  std::lock_guard lock(mutex_);
  if (!id.ok()) return status_ = id.status();
  upload_id_ = *std::move(id);
  return absl::OkStatus();
}

absl::Status S3Writer::StartPart() {
  RETURN_IF_ERROR(WaitForParts(PartsInFlight(part_.size()) - 1));
  if (upload_id_.empty()) RETURN_IF_ERROR(CreateUpload());
  size_t index;
  {
    std::lock_guard lock(mutex_);
    index = etags_.size();
    etags_.emplace_back();
    checksums_.emplace_back();
    ++in_flight_;
  }
  const ByteSpan body = part_.span().first(filled_);
  client_.UploadPart(
      bucket_, key_, upload_id_, static_cast<int>(index) + 1, body,
      [this, index, part = std::move(part_)](absl::StatusOr<ObjectInfo> result) mutable {
        std::lock_guard lock(mutex_);
        if (result.ok()) {
          etags_[index] = std::move(result->etag);
          if (result->checksum) checksums_[index] = *std::move(result->checksum);
        } else if (status_.ok()) {
          status_ = result.status();
        }
        spare_.push_back(std::move(part));
        --in_flight_;
        landed_.notify_all();  // under the lock: the waiting destructor may free it right after
      },
      stop_.get_token());
  part_ = Buffer();
  filled_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<ObjectInfo> S3Writer::PutWhole() {
  Completion<absl::StatusOr<ObjectInfo>> put;
  client_.Put(bucket_, key_, part_.span().first(filled_), options_, put.Callback());
  return put.Wait();
}

// Some stores (Ceph 16) ignore the condition when an upload is completed, and would overwrite. Asking first leaves a
// gap there, but a small one.
absl::Status S3Writer::CheckCondition() {
  if (!options_.only_if_absent && options_.if_match.empty()) return absl::OkStatus();
  Completion<absl::StatusOr<ObjectInfo>> head;
  client_.Head(bucket_, key_, head.Callback());
  const absl::StatusOr<ObjectInfo> there = head.Wait();
  if (absl::IsNotFound(there.status()) && options_.only_if_absent) return absl::OkStatus();
  RETURN_IF_ERROR(there.status());
  if (!options_.only_if_absent) return CheckMatch(Uri(), options_.if_match, there->etag);
  return absl::AlreadyExistsError(fmt::format("{}: there is an object of that key already", Uri()));
}

absl::StatusOr<ObjectInfo> S3Writer::Complete() {
  if (filled_ > 0) RETURN_IF_ERROR(StartPart());
  RETURN_IF_ERROR(WaitForParts(0));
  RETURN_IF_ERROR(CheckCondition());
  CompleteOptions options{.only_if_absent = options_.only_if_absent, .if_match = options_.if_match};
  if (digest_) {
    options.checksum = ObjectChecksum{*client_.upload_checksum(), digest_->Finish()};
    options.part_checksums = checksums_;
  }
  Completion<absl::StatusOr<ObjectInfo>> completed;
  client_.CompleteMultipart(bucket_, key_, upload_id_, etags_, completed.Callback(), std::move(options));
  absl::StatusOr<ObjectInfo> info = completed.Wait();
  if (info.ok()) upload_id_.clear();
  return info;
}

absl::StatusOr<ObjectInfo> S3Writer::Commit() {
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(status_);
  }
  ASSIGN_OR_RETURN(ObjectInfo info, upload_id_.empty() ? PutWhole() : Complete());
  info.key = key_;
  info.size = written_;
  return info;
}

}  // namespace millrace
