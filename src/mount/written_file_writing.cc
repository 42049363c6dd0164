// Changes a WrittenFile for programs: as a stream that is uploaded, or in the staging file.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/log.h"
#include "mount/mount_errno.h"
#include "mount/written_file.h"

namespace millrace {

namespace {

// A file that changes so many of its parts after they were sent is not written front to back.
constexpr int kMostPatches = 64;
// A program that comes back so soon writes as fast as it can. The first bytes after a longer pause are in the staging
// file at once.
constexpr std::chrono::milliseconds kSoon{100};
// A range is cleared so many bytes at a time.
constexpr size_t kZeroBytes = size_t{1} << 20;

}  // namespace

absl::Status WrittenFile::NoRoom() const {
  return RefusedWith(ENOSPC, fmt::format("{}: the staging folder has no room, so the file can only be written from its "
                                         "beginning to its end; raise --staging-size",
                                         uri_));
}

PutOptions WrittenFile::Condition() const {
  PutOptions options;
  options.only_if_absent = !in_store_;
  if (in_store_ && services_.store.traits().holds_if_match) options.if_match = base_.etag;
  if (set_time_) options.modified_ms = modified_ms_;
  options.most_mode &= mode_;
  return options;
}

void WrittenFile::BeginStream() {
  upload_ = std::make_unique<FileUpload>(services_.store, services_.memory, key_, Condition(), services_.make_room);
}

absl::StatusOr<size_t> WrittenFile::Write(uint64_t offset, ByteSpan bytes, const Patience& patience) {
  ASSIGN_OR_RETURN(const WriteLock write_lock, LockWrites(patience));
  RETURN_IF_ERROR(FinishCommit(patience));
  if (bytes.empty()) return size_t{0};
  // Nothing of a version is part of the file, and nothing was written yet.
  if (upload_ == nullptr && content_.size() == 0) BeginStream();
  if (services_.staging == nullptr || (upload_ != nullptr && offset == upload_->written())) {
    return WriteStream(offset, bytes, patience);
  }
  RETURN_IF_ERROR(WriteStaged(offset, bytes, patience));
  return bytes.size();
}

// Writes behind what the stream has.
absl::StatusOr<size_t> WrittenFile::WriteStream(uint64_t offset, ByteSpan bytes, const Patience& patience) {
  const bool later = CanStageLater(offset, bytes);
  if (!later) FlushStaged();
  bool kept = later || (services_.staging != nullptr && Stage(offset, bytes));
  FileUpload::Keep keep;
  if (later) {
    keep = [this](FileUpload::Kept part) {
      file_->WriteLater(part.offset, part.bytes, part.is_awaited, std::move(part.done));
    };
    if (!unflushed_) file_->BeginLater(offset);
    unflushed_ = true;
  }
  absl::StatusOr<size_t> taken = upload_->Write(offset, bytes, patience, keep);
  if (!taken.ok() && !absl::IsCancelled(taken.status()) && kept) {
    FlushStaged();
    if (later) kept = Stage(offset, bytes);
    if (kept && !content_.has_lost()) {
      // The store will be asked again by the commit, with what lies in the staging file.
      upload_.reset();
      taken = bytes.size();
    }
  }
  streamed_at_ = std::chrono::steady_clock::now();
  if (!taken.ok()) {
    std::lock_guard lock(mutex_);
    if (!absl::IsCancelled(taken.status())) failed_ = taken.status();
    return taken.status();
  }
  std::lock_guard lock(mutex_);
  content_.Wrote({offset, *taken}, kept);
  Changed();
  return taken;
}

// The bytes that a part has, and that are lost, are needed when it is sent again.
absl::Status WrittenFile::CheckNotLost(ByteRange range, uint64_t offset, size_t bytes) {
  for (const WrittenContent::Part& part : content_.Parts(range)) {
    if (part.where != WrittenContent::Where::kLost) continue;
    if (part.range.offset < offset || part.range.end() > offset + bytes) return NoRoom();
  }
  return absl::OkStatus();
}

absl::Status WrittenFile::WriteStaged(uint64_t offset, ByteSpan bytes, const Patience& patience) {
  FlushStaged();
  const uint64_t end = offset + bytes.size();
  const uint64_t streamed = upload_ == nullptr ? 0 : upload_->written();
  for (uint64_t at = offset; at < std::min(end, streamed);) {
    const ByteRange sent = upload_->SentPart(at);
    if (sent.length == 0) break;
    RETURN_IF_ERROR(CheckNotLost(sent, offset, bytes.size()));
    at = sent.end();
  }
  const bool kept = Stage(offset, bytes);
  // Bytes that are not sent yet are changed where they are.
  const bool is_unsent = upload_ != nullptr && offset >= upload_->sent() && end <= streamed;
  if (!kept && !is_unsent) return NoRoom();
  if (offset < streamed && !content_.has_lost() && ++patches_ > kMostPatches) {
    upload_.reset();  // it is not written front to back, so parts are sent once, by the commit
  } else if (offset < streamed) {
    upload_->Patch(offset, bytes.first(std::min(end, streamed) - offset));
  }
  if (upload_ != nullptr && offset < streamed && end > streamed && !content_.has_lost()) {
    // The stream continues behind that. If it fails, the commit sends all again.
    const absl::StatusOr<size_t> taken =
        upload_->Write(streamed, bytes.subspan(streamed - offset), {patience.deadline, {}});
    if (!taken.ok()) upload_.reset();
  }
  std::lock_guard lock(mutex_);
  content_.Wrote({offset, bytes.size()}, kept);
  Changed();
  return absl::OkStatus();
}

bool WrittenFile::MakeStagingFile() {
  std::lock_guard lock(mutex_);
  if (file_ != nullptr && (file_->noted() || unlinked_)) return true;
  absl::Status status;
  if (file_ == nullptr) {
    absl::StatusOr<std::unique_ptr<StagingFile>> made = services_.staging->NewFile();
    status = made.status();
    if (made.ok()) file_ = *std::move(made);
  }
  if (status.ok()) status = file_->Note(RecordLocked(), /*synced=*/false);
  if (!status.ok()) Log(LogLevel::kWarning, "mount", std::string(ToStd(status.message())));
  return status.ok();
}

// Returns true if the bytes need not be in the staging file before the next one comes: there is room for them.
bool WrittenFile::CanStageLater(uint64_t offset, ByteSpan bytes) {
  if (services_.staging == nullptr || !services_.staging->writes_later()) return false;
  if (std::chrono::steady_clock::now() - streamed_at_ > kSoon || !MakeStagingFile()) return false;
  return file_->Hold(content_.local_bytes() + content_.BytesToStage({offset, bytes.size()}));
}

// All bytes of the stream are in the staging file when it returns, or known to be lost. It comes before any call but
// one that writes behind the stream.
void WrittenFile::FlushStaged() {
  if (!unflushed_) return;
  // The bytes are flushed in the order of the file, so that what a kill leaves of it has no gap.
  std::vector<ByteRange> failed = file_->Flush();
  const ByteSpan rest = upload_->Unkept();
  const ByteRange range{upload_->written() - rest.size(), rest.size()};
  if (!rest.empty() && (!failed.empty() || !file_->Write(range.offset, rest).ok())) failed.push_back(range);
  upload_->SetKept();
  unflushed_ = false;
  if (failed.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const ByteRange& lost : failed) content_.Lose(lost);
  (void)file_->Hold(content_.local_bytes());
  (void)file_->Note(RecordLocked(), /*synced=*/false);
  if (!std::exchange(full_, true)) {
    Log(LogLevel::kWarning, "mount",
        fmt::format("{}: the disk of the staging folder does not take it; it can only be written to its end now",
                    uri_));
  }
}

// Writes into the staging file. Returns false if there is no room.
bool WrittenFile::Stage(uint64_t offset, ByteSpan bytes) {
  if (!MakeStagingFile()) return false;
  const uint64_t more = content_.BytesToStage({offset, bytes.size()});
  for (;;) {
    absl::Status written = absl::ResourceExhaustedError("--staging-size is used up");
    if (file_->Hold(content_.local_bytes() + more)) written = file_->Write(offset, bytes);
    if (written.ok()) return true;
    if (!DropArrived()) {
      if (!std::exchange(full_, true)) {
        Log(LogLevel::kWarning, "mount",
            fmt::format("{}: the staging folder has no room for it ({}); it can only be written to its end now", uri_,
                        ToStd(written.message())));
      }
      (void)file_->Hold(content_.local_bytes());
      return false;
    }
  }
}

// Parts of the stream that the store has, and a program is not likely to change, make room. False if there are none.
bool WrittenFile::DropArrived() {
  if (upload_ == nullptr) return false;
  std::lock_guard lock(mutex_);
  const uint64_t before = content_.local_bytes();
  for (const ByteRange& range : upload_->ArrivedParts()) {
    content_.Lose(range);
    file_->Drop(range);
  }
  const uint64_t after = content_.local_bytes();
  (void)file_->Hold(after);
  if (after < before) (void)file_->Note(RecordLocked(), /*synced=*/false);
  return after < before;
}

absl::Status WrittenFile::Truncate(uint64_t size, const Patience& patience) {
  ASSIGN_OR_RETURN(const WriteLock write_lock, LockWrites(patience));
  RETURN_IF_ERROR(FinishCommit(patience));
  if (size == content_.size() && services_.staging != nullptr) return absl::OkStatus();
  FlushStaged();
  if (services_.staging == nullptr && size != 0) {
    return RefusedWith(EOPNOTSUPP, uri_ + ": is neither cut nor extended by a mount with --no-staging");
  }
  if (upload_ != nullptr && size < upload_->written()) {
    if (size > 0 && content_.has_lost()) return NoRoom();
    upload_.reset();
  }
  if (file_ != nullptr) RETURN_IF_ERROR(file_->Resize(size));
  std::lock_guard lock(mutex_);
  content_.Truncate(size);
  if (services_.staging == nullptr) content_.MarkChanged();  // it ends with a commit
  if (file_ != nullptr) (void)file_->Hold(content_.local_bytes());
  Changed();
  return absl::OkStatus();
}

absl::Status WrittenFile::Clear(ByteRange range, const Patience& patience) {
  const std::vector<std::byte> zeros(std::min<uint64_t>(range.length, kZeroBytes));
  while (range.offset < std::min(range.end(), size())) {
    const uint64_t take = std::min<uint64_t>({zeros.size(), range.length, size() - range.offset});
    ASSIGN_OR_RETURN(const size_t taken, Write(range.offset, ByteSpan(zeros).first(take), patience));
    range = {range.offset + taken, range.length - taken};
  }
  return absl::OkStatus();
}

}  // namespace millrace
