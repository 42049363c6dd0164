#include "mount/written_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "mount/mount_errno.h"

namespace millrace {

namespace {

// So many bytes of a version are fetched at a time, for the staging file or for a commit.
constexpr size_t kFetchBytes = size_t{1} << 20;
// An object that is changed in part is put together by the store from pieces of at least, and about, so many bytes of
// the version before.
constexpr uint64_t kLeastCopied = uint64_t{5} << 20;
constexpr uint64_t kMostCopied = uint64_t{256} << 20;
// After a refusal so many bytes are compared with those in the store at most.
constexpr uint64_t kMostCompared = uint64_t{256} << 20;
// If a program syncs after each line, publishing takes at most one part in twenty of the time.
constexpr int kPauseOfPublish = 19;
constexpr std::chrono::seconds kPublishAppended{1};
// A program that has written nothing for so long may write nothing more.
constexpr std::chrono::seconds kIdle{1};
// The calls of programs have ended by then, but for one that hangs.
constexpr std::chrono::seconds kParkPatience{5};

bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status) || absl::IsNotFound(status);
}

}  // namespace

WrittenFile::WrittenFile(const Services& services, std::string key)
    : services_(services), key_(std::move(key)), uri_(services.store.Uri(key_)), modified_ms_(UnixMilliseconds()) {
  content_.MarkChanged();
  changed_ = true;
}

WrittenFile::WrittenFile(const Services& services, Node base)
    : services_(services),
      key_(base.key),
      uri_(services.store.Uri(key_)),
      base_(std::move(base)),
      content_(base_.size),
      size_(base_.size),
      modified_ms_(base_.modified_ms),
      in_store_(true) {}

WrittenFile::~WrittenFile() = default;

std::string WrittenFile::key() const {
  std::lock_guard lock(mutex_);
  return renamed_ ? renamed_->key : key_;
}

Node WrittenFile::node() const {
  std::lock_guard lock(mutex_);
  Node node = renamed_ ? *renamed_ : base_;
  if (changed_) node.etag.clear();
  node.key = renamed_ ? renamed_->key : key_;
  node.size = size_;
  node.modified_ms = modified_ms_;
  return node;
}

void WrittenFile::set_modified_ms(int64_t ms) {
  modified_ms_ = ms;
  set_time_ = true;
}

// Waits until no other call changes the file.
absl::StatusOr<WrittenFile::WriteLock> WrittenFile::LockWrites(const Patience& patience) {
  {
    Lock lock(mutex_);
    RETURN_IF_ERROR(patience.Wait(lock, write_unlocked_, uri_, [this] { return !write_locked_; }));
    write_locked_ = true;
  }
  WriteLock write_lock(this);
  (void)TakeOtherName();
  return write_lock;
}

// Call it before a change: an interrupted commit that has begun to make the object visible ends first, since nobody
// knows which version the store has until then.
absl::Status WrittenFile::FinishCommit(const Patience& patience) {
  RETURN_IF_ERROR(failed_);
  if (services_.staging == nullptr || upload_ == nullptr || !upload_->finishing()) return absl::OkStatus();
  const absl::Status ended = CommitNow(patience);
  return ended_ || absl::IsCancelled(ended) ? ended : absl::OkStatus();
}

void WrittenFile::Changed() {
  size_ = content_.size();
  changed_ = content_.changed() && !unlinked_;
  modified_ms_ = UnixMilliseconds();
  set_time_ = false;
}

// ---- Reading

absl::StatusOr<FileBytes> WrittenFile::Read(uint64_t offset, size_t size, const Patience& patience) {
  if (services_.staging == nullptr) {
    return RefusedWith(EBADF, uri_ + ": is being written, and cannot be read before it is closed");
  }
  const uint64_t end = std::min<uint64_t>(size_, offset + size);
  if (offset >= end) return FileBytes();
  auto bytes = std::make_shared<Buffer>(end - offset);
  if (!unflushed_ || IsFlushed(end)) {
    const absl::Status read = ReadInto(offset, bytes->span(), patience);
    if (read.ok()) return FileBytes{.parts = {bytes->span()}, .owners = {bytes}};
    if (!unflushed_) return read;
    // It was cut and written meanwhile.
  }
  ASSIGN_OR_RETURN(const WriteLock write_lock, LockWrites(patience));
  FlushStaged();
  RETURN_IF_ERROR(ReadInto(offset, bytes->span(), patience));
  return FileBytes{.parts = {bytes->span()}, .owners = {bytes}};
}

// Bytes that are in the staging file do not change, and a reader need not wait for the program that writes on.
bool WrittenFile::IsFlushed(uint64_t end) const {
  std::lock_guard lock(mutex_);
  return file_ != nullptr && end <= file_->flushed_end();
}

absl::Status WrittenFile::ReadInto(uint64_t offset, MutableByteSpan into, const Patience& patience) {
  Lock lock(mutex_);
  for (uint64_t done = 0; done < into.size();) {
    const uint64_t version = versions_;
    const std::vector<WrittenContent::Part> parts = content_.Parts({offset + done, into.size() - done});
    if (parts.empty()) {  // it was cut meanwhile
      std::memset(into.data() + done, 0, into.size() - done);
      return absl::OkStatus();
    }
    const WrittenContent::Part& part = parts.front();
    MutableByteSpan to = into.subspan(done, part.range.length);
    switch (part.where) {
      case WrittenContent::Where::kLost:
        return NoRoom();
      case WrittenContent::Where::kZeros:
        std::memset(to.data(), 0, to.size());
        break;
      case WrittenContent::Where::kLocal:
        RETURN_IF_ERROR(file_->Read(part.range.offset, to));
        break;
      case WrittenContent::Where::kBase: {
        if (window_ == nullptr) window_ = services_.open_base(renamed_ ? *renamed_ : base_);
        const std::shared_ptr<ReadWindow> window = window_;
        to = to.first(std::min(to.size(), kFetchBytes));
        lock.unlock();
        const absl::StatusOr<FileBytes> read = window->Read(part.range.offset, to.size(), patience);
        lock.lock();
        if (!read.ok() && versions_ != version) continue;  // it was committed meanwhile
        RETURN_IF_ERROR(read.status());
        if (read->size() != to.size()) {
          return RefusedWith(ESTALE, uri_ + ": has become shorter in the store while it was changed");
        }
        for (const ByteSpan piece : read->parts) {
          std::memcpy(to.data(), piece.data(), piece.size());
          to = to.subspan(piece.size());
        }
        to = into.subspan(done, std::min<uint64_t>(part.range.length, kFetchBytes));
        break;
      }
    }
    done += to.size();
  }
  return absl::OkStatus();
}

// ---- Versions

// A folder holds no condition, so what is there is looked at right before.
absl::Status WrittenFile::CheckFolderBase(const Patience& patience) {
  if (!in_store_ || services_.store.traits().holds_if_match) return absl::OkStatus();
  Completion<absl::StatusOr<ObjectInfo>> call;
  services_.store.Head(key_, {}, call.Callback());
  ASSIGN_OR_RETURN(const ObjectInfo now, patience.Wait(call, uri_));
  if (now.etag == base_.etag) return absl::OkStatus();
  return absl::FailedPreconditionError(uri_ + ": has been replaced");
}

absl::StatusOr<ObjectInfo> WrittenFile::Upload(const Patience& patience) {
  if (services_.staging == nullptr) {
    if (upload_ == nullptr) BeginStream();
    if (set_time_) upload_->set_modified_ms(modified_ms_);
    return upload_->Finish(patience);
  }
  RETURN_IF_ERROR(CheckFolderBase(patience));
  const FileUpload::Load load = [this, &patience](uint64_t offset, MutableByteSpan into) {
    return ReadInto(offset, into, patience);
  };
  if (upload_ != nullptr && upload_->written() > 0) {
    if (set_time_) upload_->set_modified_ms(modified_ms_);
    return upload_->Finish(content_.size(), load, patience);
  }
  if (upload_ == nullptr) BeginStream();
  const PieceLimits& limits = services_.store.traits().pieces;
  if (content_.uses_base() && content_.size() > kLeastCopied && upload_->CopiesPieces()) {
    const std::vector<WrittenContent::Piece> pieces = content_.CommitPieces(limits, kLeastCopied, kMostCopied);
    if (std::any_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.copied; })) {
      const ObjectInfo base{.key = key_, .size = base_.size, .etag = base_.etag, .modified_ms = base_.modified_ms};
      absl::StatusOr<ObjectInfo> info = upload_->FinishCopied(pieces, base, load, patience);
      if (absl::IsCancelled(info.status()) && !upload_->finishing()) upload_.reset();  // another call begins again
      if (!absl::IsUnimplemented(info.status())) return info;
      upload_.reset();
      BeginStream();
    }
  }
  return upload_->FinishPieces(content_.CommitPieces(limits, 0, 0), load, patience);
}

// A request whose answer was lost may have been done, and the one after it is refused then: the store has these bytes.
std::optional<ObjectInfo> WrittenFile::FindOurs(const Patience& patience) {
  if (services_.staging == nullptr || content_.uses_base() || content_.has_lost() || size_ > kMostCompared) {
    return std::nullopt;
  }
  Completion<absl::StatusOr<ObjectInfo>> call;
  services_.store.Head(key_, {}, call.Callback());
  const absl::StatusOr<ObjectInfo> now = patience.Wait(call, uri_);
  if (!now.ok() || now->size != size_) return std::nullopt;
  const std::unique_ptr<ReadWindow> theirs =
      services_.open_base({.key = key_, .size = now->size, .modified_ms = now->modified_ms, .etag = now->etag});
  std::vector<std::byte> ours(kFetchBytes);
  for (uint64_t at = 0; at < size_; at += kFetchBytes) {
    const size_t bytes = std::min<uint64_t>(kFetchBytes, size_ - at);
    const absl::StatusOr<FileBytes> read = theirs->Read(at, bytes, patience);
    if (!read.ok() || read->size() != bytes) return std::nullopt;
    if (!ReadInto(at, MutableByteSpan(ours).first(bytes), patience).ok()) return std::nullopt;
    size_t compared = 0;
    for (const ByteSpan part : read->parts) {
      if (std::memcmp(part.data(), ours.data() + compared, part.size()) != 0) return std::nullopt;
      compared += part.size();
    }
  }
  return *now;
}

absl::Status WrittenFile::Commit(const Patience& patience) {
  ASSIGN_OR_RETURN(const WriteLock write_lock, LockWrites(patience));
  return CommitNow(patience);
}

absl::Status WrittenFile::CommitNow(const Patience& patience) {
  if (stream_is_done_) return absl::OkStatus();
  RETURN_IF_ERROR(failed_);
  if (!content_.changed() || unlinked_) return absl::OkStatus();
  absl::StatusOr<ObjectInfo> info;
  do {
    RETURN_IF_ERROR(failed_);
    FlushStaged();
    info = Upload(patience);
    if (absl::IsCancelled(info.status())) return info.status();  // another call continues
  } while (TakeOtherName());                                     // the name that it was sent to is another file's now
  if (IsRefusal(info.status())) {
    if (const std::optional<ObjectInfo> ours = FindOurs(patience)) info = *ours;
  }
  std::unique_ptr<FileUpload> over;  // its end waits for the store
  std::lock_guard lock(mutex_);
  if (services_.staging != nullptr) over = std::move(upload_);
  if (info.ok()) {
    content_.Committed();
    changed_ = false;
    deferred_ = false;
    in_store_ = true;
    base_ = {.key = key_, .size = content_.size(), .modified_ms = modified_ms_, .etag = info->etag};
    ++versions_;
    window_ = nullptr;
    if (file_ != nullptr) file_->RemoveNote();
    if (services_.staging == nullptr) {
      failed_ = RefusedWith(EIO, uri_ + ": was made visible by close or fsync; what is written after that is not kept");
      ended_ = stream_is_done_ = true;
    }
    return absl::OkStatus();
  }
  if (IsRefusal(info.status())) {
    failed_ =
        RefusedWith(ESTALE, fmt::format("{}: another program has made or replaced it since it was opened here", uri_));
    ended_ = true;
    ParkLocked(std::string(failed_.message()), /*synced=*/true);
    return failed_;
  }
  if (services_.staging == nullptr || content_.has_lost()) {
    failed_ = info.status();
    ended_ = true;
  }
  return info.status();  // another commit sends all again
}

bool WrittenFile::CanWait(const Patience& patience) {
  const absl::StatusOr<WriteLock> write_lock = LockWrites(patience);
  if (!write_lock.ok()) return false;
  FlushStaged();
  std::lock_guard lock(mutex_);
  return failed_.ok() && !content_.has_lost();
}

bool WrittenFile::FlushIdle() {
  if (!unflushed_) return true;
  {
    std::lock_guard lock(mutex_);
    if (write_locked_ || std::chrono::steady_clock::now() - streamed_at_ < kIdle) return false;
    write_locked_ = true;
  }
  const WriteLock write_lock(this);
  FlushStaged();
  return true;
}

absl::Status WrittenFile::Sync(const Patience& patience) {
  ASSIGN_OR_RETURN(const WriteLock write_lock, LockWrites(patience));
  if (stream_is_done_) return absl::OkStatus();
  RETURN_IF_ERROR(failed_);
  if (!content_.changed() || unlinked_) return absl::OkStatus();
  FlushStaged();
  if (services_.staging == nullptr || content_.has_lost()) return CommitNow(patience);
  synced_ = true;
  if (file_ != nullptr) {
    RETURN_IF_ERROR(file_->Sync());
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(file_->Note(RecordLocked(), /*synced=*/true));
  }
  const std::chrono::nanoseconds every =
      services_.publish_every.count() > 0 ? services_.publish_every : kPublishAppended;
  const auto begin = std::chrono::steady_clock::now();
  if ((!appended_ && services_.publish_every.count() == 0) || begin < publish_after_) return absl::OkStatus();
  absl::Status published = CommitNow(patience);
  const auto end = std::chrono::steady_clock::now();
  publish_after_ = std::max(begin + every, end + (end - begin) * kPauseOfPublish);
  if (published.ok() || ended_ || absl::IsCancelled(published)) return published;
  // The bytes are on the disk, as the program has asked, and another commit follows.
  Log(LogLevel::kWarning, "mount", fmt::format("{}: is not published yet: {}", uri_, ToStd(published.message())));
  return absl::OkStatus();
}

void WrittenFile::Abandon() {
  std::lock_guard lock(mutex_);
  if (failed_.ok()) {
    failed_ = RefusedWith(EIO, uri_ + ": the process that wrote it was killed, so it is no object; write it again");
  }
  abandoned_ = true;
  ended_ = true;
  changed_ = false;
}

absl::Status WrittenFile::Fetch(const Patience& patience) {
  ASSIGN_OR_RETURN(const WriteLock write_lock, LockWrites(patience));
  FlushStaged();
  for (uint64_t at = 0; at < content_.size();) {
    const std::vector<WrittenContent::Part> parts = content_.Parts({at, content_.size() - at});
    const WrittenContent::Part& part = parts.front();
    at = part.range.end();
    if (part.where != WrittenContent::Where::kBase) continue;
    Buffer bytes(std::min<uint64_t>(part.range.length, kFetchBytes));
    at = part.range.offset + bytes.size();
    RETURN_IF_ERROR(ReadInto(part.range.offset, bytes.span(), patience));
    if (!Stage(part.range.offset, bytes.span())) return NoRoom();
    std::lock_guard lock(mutex_);
    content_.Fetched({part.range.offset, bytes.size()});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Node>> WrittenFile::Unlink(const Patience& patience) {
  ASSIGN_OR_RETURN(const WriteLock write_lock, LockWrites(patience));
  RETURN_IF_ERROR(FinishCommit(patience));
  FlushStaged();
  std::unique_ptr<FileUpload> over;  // its end waits for the store
  std::lock_guard lock(mutex_);
  over = std::move(upload_);
  unlinked_ = true;
  changed_ = false;
  if (file_ != nullptr) file_->RemoveNote();
  return in_store_ ? std::optional(base_) : std::nullopt;
}

void WrittenFile::Relink() {
  std::lock_guard lock(mutex_);
  unlinked_ = false;
  changed_ = content_.changed();
}

void WrittenFile::DropStaged() {
  std::lock_guard lock(mutex_);
  if (!changed_ && !kept_) file_.reset();
}

void WrittenFile::Rename(Node now, const Patience& patience) {
  {
    std::lock_guard lock(mutex_);
    renamed_ = std::move(now);
    ++versions_;
    window_ = nullptr;
  }
  (void)LockWrites({patience.deadline, {}});  // if a call hangs, the next one takes the name
}

// Call it with the write lock. Returns true if the file was renamed while another call had it.
bool WrittenFile::TakeOtherName() {
  {
    std::lock_guard lock(mutex_);
    if (!renamed_) return false;
  }
  FlushStaged();
  std::unique_ptr<FileUpload> over;  // of the other key: its end waits for the store
  std::lock_guard lock(mutex_);
  over = std::move(upload_);
  if (content_.has_lost()) {
    failed_ = RefusedWith(EIO, uri_ + ": was renamed while it was written, and the staging folder had no room for it");
    ended_ = true;
  }
  base_ = *std::exchange(renamed_, std::nullopt);
  key_ = base_.key;
  uri_ = services_.store.Uri(key_);
  ++versions_;
  window_ = nullptr;
  return true;
}

StagedRecord WrittenFile::RecordLocked() const {
  const bool is_whole = !content_.uses_base() && !content_.has_lost();
  return {.uri = services_.store.Uri(renamed_ ? renamed_->key : key_),
          .base = is_whole              ? ""
                  : content_.has_lost() ? "(parts of an upload)"
                                        : base_.etag,
          .size = content_.size(),
          .local = is_whole ? std::vector<ByteRange>() : content_.local_ranges(),
          .why = failed_.ok() ? "" : std::string(failed_.message())};
}

void WrittenFile::Park(const std::string& why, bool synced) {
  const absl::StatusOr<WriteLock> write_lock = LockWrites({std::chrono::steady_clock::now() + kParkPatience, {}});
  if (write_lock.ok()) FlushStaged();
  std::lock_guard lock(mutex_);
  if (!changed_ || unlinked_) return;
  failed_ = RefusedWith(EIO, why);
  ended_ = true;
  ParkLocked(why, synced);
}

void WrittenFile::ParkLocked(const std::string& why, bool synced) {
  changed_ = false;
  if (file_ == nullptr) return;
  if (content_.has_lost()) {
    Log(LogLevel::kWarning, "mount",
        why + "; its bytes are lost, since the staging folder had no room for all of them");
    return;
  }
  absl::Status kept = file_->Note(RecordLocked(), synced);
  if (kept.ok() && synced) kept = file_->Sync();
  file_->Keep();
  kept_ = true;
  Log(LogLevel::kWarning, "mount",
      fmt::format("{}; its bytes are in {} ({}; millrace mount --recover lists such files)", why, file_->path(),
                  !kept.ok() ? std::string(ToStd(kept.message()))
                  : synced   ? "on the disk"
                             : "not synced"));
}

}  // namespace millrace
