#include "store/s3_upload.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "s3/checksum.h"
#include "store/checks.h"
#include "store/completion.h"

namespace millrace {

namespace {

// Who gives up, often because the store is gone, is not to wait for it.
constexpr std::chrono::seconds kAbortLimit{5};
constexpr std::chrono::seconds kAnswerLimit{2};

}  // namespace

S3Upload::S3Upload(S3Client& client, std::string bucket, std::string key, PutOptions options)
    : client_(client), bucket_(std::move(bucket)), key_(std::move(key)), options_(std::move(options)) {
  if (options_.stop.stop_possible()) on_stop_.emplace(options_.stop, [this] { stop_.request_stop(); });
}

S3Upload::~S3Upload() {
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

std::string S3Upload::Uri() const {
  return fmt::format("s3://{}/{}", bucket_, key_);
}

absl::Status S3Upload::Create() {
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

void S3Upload::Send(size_t index, ByteSpan body, DoneCallback landed) {
  Part part;
  part.bytes = body.size();
  if (const auto kind = client_.upload_checksum()) {
    part.crc = CrcOf(*kind, body);
    part.checksum = ObjectChecksum{*kind, CrcDigest(*kind, part.crc)};
  }
  {
    std::lock_guard lock(mutex_);
    if (parts_.size() <= index) parts_.resize(index + 1);
    ++in_flight_;
  }
  client_.UploadPart(
      bucket_, key_, upload_id_, static_cast<int>(index) + 1, body,
      [this, index, part = std::move(part), landed = std::move(landed)](absl::StatusOr<ObjectInfo> result) mutable {
        absl::Status status = result.status();
        {
          std::lock_guard lock(mutex_);
          if (result.ok()) {
            part.etag = std::move(result->etag);
            parts_[index] = std::move(part);
          } else if (status_.ok()) {
            status_ = status;
          }
        }
        std::move(landed)(std::move(status));
        std::lock_guard lock(mutex_);
        --in_flight_;
        landed_.notify_all();  // under the lock: the waiting destructor may free it right after
      },
      stop_.get_token());
}

absl::Status S3Upload::WaitFor(int at_most) {
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] { return in_flight_ <= at_most; });
  return status_;
}

// Some stores (Ceph 16) ignore the condition when an upload is completed, and would overwrite. Asking first leaves a
// gap there, but a small one.
absl::Status S3Upload::CheckCondition() {
  if (!options_.only_if_absent && options_.if_match.empty()) return absl::OkStatus();
  Completion<absl::StatusOr<ObjectInfo>> head;
  client_.Head(bucket_, key_, head.Callback());
  const absl::StatusOr<ObjectInfo> there = head.Wait();
  if (absl::IsNotFound(there.status()) && options_.only_if_absent) return absl::OkStatus();
  RETURN_IF_ERROR(there.status());
  if (!options_.only_if_absent) return CheckMatch(Uri(), options_.if_match, there->etag);
  return absl::AlreadyExistsError(fmt::format("{}: there is an object of that key already", Uri()));
}

absl::StatusOr<ObjectInfo> S3Upload::Complete() {
  RETURN_IF_ERROR(WaitFor(0));
  std::vector<std::string> etags;
  CompleteOptions options{.only_if_absent = options_.only_if_absent, .if_match = options_.if_match};
  const auto kind = client_.upload_checksum();
  uint64_t crc = 0;
  uint64_t size = 0;
  for (const Part& part : parts_) {
    etags.push_back(part.etag);
    size += part.bytes;
    if (!kind) continue;
    options.part_checksums.push_back(*part.checksum);
    crc = CombineCrcs(*kind, crc, part.crc, part.bytes);
  }
  if (kind) options.checksum = ObjectChecksum{*kind, CrcDigest(*kind, crc)};
  RETURN_IF_ERROR(CheckCondition());
  Completion<absl::StatusOr<ObjectInfo>> completed;
  client_.CompleteMultipart(bucket_, key_, upload_id_, std::move(etags), completed.Callback(), std::move(options));
  ASSIGN_OR_RETURN(ObjectInfo info, completed.Wait());
  upload_id_.clear();
  info.key = key_;
  info.size = size;
  return info;
}

}  // namespace millrace
