#include "store/s3_upload.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/log_exception.h"
#include "s3/checksum.h"
#include "store/checks.h"
#include "store/completion.h"

namespace millrace {

namespace {

// A program that gives up, often because the store is gone, is not to wait for it.
constexpr std::chrono::seconds kAbortLimit{5};
constexpr std::chrono::seconds kAnswerLimit{2};

}  // namespace

S3Upload::S3Upload(Runtime& runtime, S3Client& client, std::string bucket, std::string key, PutOptions options)
    : runtime_(runtime),
      client_(client),
      bucket_(std::move(bucket)),
      key_(std::move(key)),
      options_(std::move(options)),
      ledger_(fmt::format("s3://{}/{}", bucket_, key_), kLimits) {
  if (options_.stop.stop_possible()) on_stop_.emplace(options_.stop, [this] { OnStop(); });
}

S3Upload::~S3Upload() {
  on_stop_.reset();
  // A part that arrives after the abort stays, until it is aborted once more.
  stop_.request_stop();
  {
    std::unique_lock lock(mutex_);
    // A stop does not cut off an answer that is on its way: without its id the upload could not be aborted.
    if (!changed_.wait_for(lock, kAnswerLimit, [this] { return state_ != State::kBeginning; })) {
      lock.unlock();
      give_up_.request_stop();
      lock.lock();
    }
    changed_.wait(lock, [this] { return in_flight_ == 0; });
  }
  if (state_ == State::kBegun) Abort();
}

void S3Upload::Abort() {
  Completion<absl::Status> aborted;
  client_.AbortMultipart(bucket_, key_, upload_id_, aborted.Callback());
  // Beyond the limit, the request to abort continues for as long as the client lives.
  const absl::Status status =
      aborted.WaitFor(kAbortLimit) ? aborted.Wait() : absl::UnavailableError("the store does not answer in time");
  if (status.ok() || absl::IsNotFound(status)) return;
  Log(LogLevel::kWarning, "store",
      fmt::format("{}: the parts of an unfinished upload stay in the bucket until it is aborted: {}", ledger_.uri(),
                  ToStd(status.message())));
}

void S3Upload::Enter() {
  std::lock_guard lock(mutex_);
  ++in_flight_;
}

void S3Upload::Leave() {
  std::lock_guard lock(mutex_);
  --in_flight_;
  changed_.notify_all();  // under the lock: the waiting destructor may free it right after
}

absl::Status S3Upload::Stopped() const {
  return absl::CancelledError(fmt::format("{}: writing was cancelled", ledger_.uri()));
}

// Counts as in flight until it has been called.
template <typename Result>
SureAnswer<Result> S3Upload::Tracked(absl::AnyInvocable<void(Result)> done) {
  EventLoop& loop = runtime_.loops().Next();
  SureAnswer<Result> sure(loop, std::move(done));
  absl::AnyInvocable<void(Result)> counted = [this, sure = std::move(sure)](Result result) mutable {
    sure(std::move(result));
    Leave();
  };
  Enter();
  return {loop, std::move(counted)};
}

// If it throws, the callback answers.
void S3Upload::Write(size_t index, uint64_t offset, ByteSpan bytes, std::optional<uint32_t> crc32c,
                     DoneCallback done) noexcept {
  try {
    Add(offset, {index, bytes, crc32c, Tracked(std::move(done)), std::nullopt});
  } catch (const std::exception& error) {
    LogException("store", error);
  }
}

void S3Upload::Copy(size_t index, uint64_t offset, const ObjectInfo& source, ByteRange range,
                    DoneCallback done) noexcept {
  try {
    const S3CopySource from{.bucket = bucket_, .key = source.key, .size = source.size, .etag = source.etag};
    Add(offset, {index, {}, std::nullopt, Tracked(std::move(done)), CopiedRange{from, range}});
  } catch (const std::exception& error) {
    LogException("store", error);
  }
}

void S3Upload::Add(uint64_t offset, Piece piece) {
  absl::Status bad = ledger_.Admit(piece.index, {offset, piece.length()});
  if (!bad.ok()) return piece.done(std::move(bad));
  std::unique_lock lock(mutex_);
  if (state_ == State::kNew) copies_ = piece.copied.has_value();
  if (piece.copied && !copies_) {
    lock.unlock();
    return piece.done(absl::InvalidArgumentError(
        fmt::format("{}: pieces are copied before the first one is written", ledger_.uri())));
  }
  if (state_ == State::kBegun) {
    lock.unlock();
    return Send(std::move(piece));
  }
  if (state_ == State::kFailed || stop_.stop_requested()) {
    absl::Status status = state_ == State::kFailed ? failure_ : Stopped();
    lock.unlock();
    return runtime_.loops().Next().Post(
        [piece = std::move(piece), status = std::move(status)]() mutable { piece.done(std::move(status)); });
  }
  waiting_.push_back(std::move(piece));
  if (std::exchange(state_, State::kBeginning) == State::kBeginning) return;
  lock.unlock();
  Begin();
}

void S3Upload::Begin() {
  Enter();
  client_.CreateMultipart(bucket_, key_,
                          {.content_type = options_.content_type, .checksum = !copies_, .stop = give_up_.get_token()},
                          [this](absl::StatusOr<std::string> id) { OnBegun(std::move(id)); });
}

void S3Upload::OnBegun(absl::StatusOr<std::string> id) {
  const absl::Cleanup leave = [this] { Leave(); };
  std::vector<Piece> pieces;
  {
    std::lock_guard lock(mutex_);
    pieces.swap(waiting_);
    state_ = id.ok() ? State::kBegun : State::kFailed;
    failure_ = id.status();
    if (id.ok()) upload_id_ = *std::move(id);
    changed_.notify_all();
  }
  if (failure_.ok()) {
    for (Piece& piece : pieces) Send(std::move(piece));
  } else {
    EndAll(std::move(pieces), failure_);
  }
}

// Pieces in flight have the stop themselves; those that wait for the upload to begin need not wait for that.
void S3Upload::OnStop() {
  stop_.request_stop();
  std::unique_lock lock(mutex_);
  if (waiting_.empty()) return;
  ++in_flight_;
  lock.unlock();
  try {
    runtime_.loops().Next().Post([this] { EndWaiting(); });
  } catch (const std::exception& error) {  // then they wait for the upload to begin
    LogException("store", error);
    Leave();
  }
}

void S3Upload::EndWaiting() {
  const absl::Cleanup leave = [this] { Leave(); };
  std::vector<Piece> pieces;
  {
    std::lock_guard lock(mutex_);
    pieces.swap(waiting_);
  }
  EndAll(std::move(pieces), Stopped());
}

void S3Upload::EndAll(std::vector<Piece> pieces, const absl::Status& status) {
  for (Piece& piece : pieces) piece.done(status);
}

// Making the checksum, and, if the bytes are signed, their hash, takes milliseconds: neither the caller nor an event
// loop has them to spare.
void S3Upload::Send(Piece piece) {
  if (piece.copied) return SendCopy(std::move(piece));
  runtime_.cpu().Submit([this, piece = std::move(piece)]() mutable {
    const int number = static_cast<int>(piece.index) + 1;
    const ByteSpan bytes = piece.bytes;
    const std::optional<uint32_t> crc32c = piece.crc32c;
    try {
      client_.UploadPart(
          bucket_, key_, upload_id_, number, bytes,
          [this, piece = std::move(piece)](absl::StatusOr<ObjectInfo> sent) mutable { OnSent(piece, std::move(sent)); },
          stop_.get_token(), crc32c, /*checksum=*/!copies_);
    } catch (const std::exception& error) {  // no thread of the pool may end by it
      LogException("store", error);
    }
  });
}

void S3Upload::SendCopy(Piece piece) {
  const int number = static_cast<int>(piece.index) + 1;
  const CopiedRange copied = *piece.copied;
  client_.UploadPartCopy(
      bucket_, key_, upload_id_, number, copied.source, copied.range,
      [this, piece = std::move(piece)](absl::StatusOr<ObjectInfo> sent) mutable { OnSent(piece, std::move(sent)); },
      stop_.get_token());
}

void S3Upload::OnSent(Piece& piece, absl::StatusOr<ObjectInfo> sent) {
  if (sent.ok()) {
    std::lock_guard lock(mutex_);
    if (parts_.size() <= piece.index) parts_.resize(piece.index + 1);
    parts_[piece.index] = {std::move(sent->etag), std::move(sent->checksum), piece.length()};
    ledger_.Enter(piece.index);
  }
  piece.done(sent.status());
}

// Some stores (Ceph 16) ignore the condition when an upload is completed, and would overwrite. Asking first leaves a
// gap there, but a small one.
void S3Upload::CheckCondition(DoneCallback done) {
  if (!options_.only_if_absent && options_.if_match.empty()) return std::move(done)(absl::OkStatus());
  client_.Head(bucket_, key_, [this, done = std::move(done)](const absl::StatusOr<ObjectInfo>& there) mutable {
    absl::Status status = there.status();
    if (there.ok() && options_.only_if_absent) {
      status = absl::AlreadyExistsError(fmt::format("{}: there is an object of that key already", ledger_.uri()));
    } else if (there.ok()) {
      status = CheckMatch(ledger_.uri(), options_.if_match, there->etag);
    } else if (absl::IsNotFound(status) && options_.only_if_absent) {
      status = absl::OkStatus();
    }
    std::move(done)(std::move(status));
  });
}

void S3Upload::Commit(uint64_t object_bytes, PutCallback done) {
  try {
    CommitChecked(object_bytes, Tracked(std::move(done)));
  } catch (const std::exception& error) {  // the callback answers
    LogException("store", error);
  }
}

void S3Upload::CommitChecked(uint64_t object_bytes, SureAnswer<absl::StatusOr<ObjectInfo>> done) {
  absl::Status whole = ledger_.CheckAll(object_bytes);
  if (!whole.ok()) {
    return runtime_.loops().Next().Post(
        [status = std::move(whole), done = std::move(done)]() mutable { done(std::move(status)); });
  }
  CheckCondition([this, size = object_bytes, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) return Complete(size, std::move(done));
    done(std::move(status));
  });
}

void S3Upload::Complete(uint64_t size, SureAnswer<absl::StatusOr<ObjectInfo>> done) {
  std::vector<std::string> etags;
  CompleteOptions options{.only_if_absent = options_.only_if_absent, .if_match = options_.if_match};
  const auto kind = copies_ ? std::nullopt : client_.upload_checksum();
  uint64_t crc = 0;
  for (const Part& part : parts_) {
    etags.push_back(part.etag);
    if (!kind) continue;
    options.part_checksums.push_back(*part.checksum);
    crc = CombineCrcs(*kind, crc, CrcOfDigest(part.checksum->digest), part.bytes);
  }
  if (kind) options.checksum = ObjectChecksum{*kind, CrcDigest(*kind, crc)};
  client_.CompleteMultipart(
      bucket_, key_, upload_id_, std::move(etags),
      [this, size, done = std::move(done)](absl::StatusOr<ObjectInfo> info) mutable {
        if (info.ok()) {
          std::lock_guard lock(mutex_);
          state_ = State::kCommitted;
          info->key = key_;
          info->size = size;
        }
        done(std::move(info));
      },
      std::move(options));
}

}  // namespace millrace
