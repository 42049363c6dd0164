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

// Bytes of a version that are fetched at a time, for the staging file or for a commit.
constexpr size_t kFetchBytes = size_t{1} << 20;
// A file that changes so many of its parts after they were sent is not written front to back.
constexpr int kMostPatches = 64;
// An object that is changed in part is put together by the store from pieces of at least, and about, so many bytes of
// the version before.
constexpr uint64_t kLeastCopied = uint64_t{5} << 20;
constexpr uint64_t kMostCopied = uint64_t{256} << 20;
// After a refusal so many bytes are compared with those in the store at most.
constexpr uint64_t kMostCompared = uint64_t{256} << 20;
// A program that syncs after each line publishes for one part in twenty of the time.
constexpr int kPauseOfPublish = 19;
constexpr std::chrono::seconds kPublishAppended{1};
// A program that comes back so soon writes as fast as it can. Bytes of others are in the staging file at once.
constexpr std::chrono::milliseconds kSoon{100};
// The calls of programs have ended by then, but for one that hangs.
constexpr std::chrono::seconds kParkPatience{5};

bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status) || absl::IsNotFound(status);
}

}  // namespace

/// The right of one call to change the file.
class WrittenFile::Turn {
 public:
  explicit Turn(WrittenFile* file) : file_(file) {}
  Turn(Turn&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (file_ == nullptr) return;
    std::lock_guard lock(file_->mutex_);
    file_->has_turn_ = false;
    file_->turn_over_.notify_all();
  }

 private:
  WrittenFile* file_;
};

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
  return key_;
}

Node WrittenFile::node() const {
  std::lock_guard lock(mutex_);
  Node node = base_;
  if (changed_) node.etag.clear();
  node.key = key_;
  node.size = size_;
  node.modified_ms = modified_ms_;
  return node;
}

void WrittenFile::set_modified_ms(int64_t ms) {
  modified_ms_ = ms;
  set_time_ = true;
}

// Waits until no other call changes the file.
absl::StatusOr<WrittenFile::Turn> WrittenFile::TakeTurn(const Patience& patience) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(patience.Wait(lock, turn_over_, uri_, [this] { return !has_turn_; }));
  has_turn_ = true;
  return Turn(this);
}

// Before a change: an interrupted commit that has begun to make the object visible ends first, since nobody knows which
// version the store has until then.
absl::Status WrittenFile::SettleCommit(const Patience& patience) {
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

absl::Status WrittenFile::NoRoom() const {
  return RefusedWith(ENOSPC, fmt::format("{}: the staging folder has no room, so the file can only be written from its "
                                         "beginning to its end; raise --staging-size",
                                         uri_));
}

// ---- Writing

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
  ASSIGN_OR_RETURN(const Turn turn, TakeTurn(patience));
  RETURN_IF_ERROR(SettleCommit(patience));
  if (bytes.empty()) return size_t{0};
  // Nothing of a version is part of the file, and nothing was written yet.
  if (upload_ == nullptr && content_.size() == 0) BeginStream();
  if (services_.staging == nullptr || (upload_ != nullptr && offset == upload_->written())) {
    return WriteStream(offset, bytes, patience);
  }
  RETURN_IF_ERROR(WriteStaged(offset, bytes, patience));
  return bytes.size();
}

// Behind what the stream has.
absl::StatusOr<size_t> WrittenFile::WriteStream(uint64_t offset, ByteSpan bytes, const Patience& patience) {
  const bool later = CanStageLater(offset, bytes);
  if (!later) SettleStaged();
  bool kept = later || (services_.staging != nullptr && Stage(offset, bytes));
  FileUpload::Keep keep;
  if (later) {
    keep = [this](uint64_t at, ByteSpan part, std::function<void()> done) {
      file_->WriteLater(at, part, std::move(done));
    };
    unsettled_ = true;
  }
  absl::StatusOr<size_t> taken = upload_->Write(offset, bytes, patience, keep);
  if (!taken.ok() && !absl::IsCancelled(taken.status()) && kept) {
    SettleStaged();
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
  SettleStaged();
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

// True if the bytes need not be in the staging file before the next one comes: there is room for them.
bool WrittenFile::CanStageLater(uint64_t offset, ByteSpan bytes) {
  if (services_.staging == nullptr || !services_.staging->writes_later()) return false;
  if (std::chrono::steady_clock::now() - streamed_at_ > kSoon || !MakeStagingFile()) return false;
  return file_->Hold(content_.local_bytes() + content_.BytesToStage({offset, bytes.size()}));
}

// All bytes of the stream are in the staging file when it returns, or known to be lost. It comes before any call but
// one that writes behind the stream.
void WrittenFile::SettleStaged() {
  if (!unsettled_) return;
  // In the order of the file, so that what a kill leaves of it has no gap.
  std::vector<ByteRange> failed = file_->Settle();
  if (upload_ != nullptr) {  // else Rename took it from a call that hangs
    const ByteSpan rest = upload_->Unkept();
    const ByteRange range{upload_->written() - rest.size(), rest.size()};
    if (!rest.empty() && (!failed.empty() || !file_->Write(range.offset, rest).ok())) failed.push_back(range);
    upload_->SetKept();
  }
  unsettled_ = false;
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

// Into the staging file. False if there is no room.
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
  ASSIGN_OR_RETURN(const Turn turn, TakeTurn(patience));
  RETURN_IF_ERROR(SettleCommit(patience));
  if (size == content_.size() && services_.staging != nullptr) return absl::OkStatus();
  SettleStaged();
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
  const std::vector<std::byte> zeros(std::min<uint64_t>(range.length, kFetchBytes));
  while (range.offset < std::min(range.end(), size())) {
    const uint64_t take = std::min<uint64_t>({zeros.size(), range.length, size() - range.offset});
    ASSIGN_OR_RETURN(const size_t taken, Write(range.offset, ByteSpan(zeros).first(take), patience));
    range = {range.offset + taken, range.length - taken};
  }
  return absl::OkStatus();
}

// ---- Reading

absl::StatusOr<FileBytes> WrittenFile::Read(uint64_t offset, size_t size, const Patience& patience) {
  if (services_.staging == nullptr) {
    return RefusedWith(EBADF, uri_ + ": is being written, and cannot be read before it is closed");
  }
  const uint64_t end = std::min<uint64_t>(size_, offset + size);
  if (offset >= end) return FileBytes();
  auto bytes = std::make_shared<Buffer>(end - offset);
  for (;;) {
    std::optional<Turn> turn;
    if (unsettled_) {
      ASSIGN_OR_RETURN(Turn taken, TakeTurn(patience));
      turn.emplace(std::move(taken));
      SettleStaged();
    }
    absl::Status read = ReadInto(offset, bytes->span(), patience);
    if (!read.ok() && !turn && unsettled_) continue;  // it was cut and written meanwhile
    RETURN_IF_ERROR(read);
    break;
  }
  return FileBytes{.parts = {bytes->span()}, .owners = {bytes}};
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
        if (window_ == nullptr) window_ = services_.open_base(base_);
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
  ASSIGN_OR_RETURN(const Turn turn, TakeTurn(patience));
  return CommitNow(patience);
}

absl::Status WrittenFile::CommitNow(const Patience& patience) {
  if (stream_is_done_) return absl::OkStatus();
  RETURN_IF_ERROR(failed_);
  if (!content_.changed() || unlinked_) return absl::OkStatus();
  SettleStaged();
  absl::StatusOr<ObjectInfo> info = Upload(patience);
  if (absl::IsCancelled(info.status())) return info.status();  // another call goes on
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
    ParkLocked(std::string(failed_.message()));
    return failed_;
  }
  if (services_.staging == nullptr || content_.has_lost()) {
    failed_ = info.status();
    ended_ = true;
  }
  return info.status();  // another commit sends all again
}

bool WrittenFile::CanWait(const Patience& patience) {
  const absl::StatusOr<Turn> turn = TakeTurn(patience);
  if (!turn.ok()) return false;
  SettleStaged();
  std::lock_guard lock(mutex_);
  return failed_.ok() && !content_.has_lost();
}

absl::Status WrittenFile::Sync(const Patience& patience) {
  ASSIGN_OR_RETURN(const Turn turn, TakeTurn(patience));
  if (stream_is_done_) return absl::OkStatus();
  RETURN_IF_ERROR(failed_);
  if (!content_.changed() || unlinked_) return absl::OkStatus();
  SettleStaged();
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
  failed_ = RefusedWith(EIO, uri_ + ": the process that wrote it was killed, so nothing of it is kept; write it again");
  abandoned_ = true;
  ended_ = true;
  changed_ = false;
}

absl::Status WrittenFile::Fetch(const Patience& patience) {
  ASSIGN_OR_RETURN(const Turn turn, TakeTurn(patience));
  SettleStaged();
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
  ASSIGN_OR_RETURN(const Turn turn, TakeTurn(patience));
  RETURN_IF_ERROR(SettleCommit(patience));
  SettleStaged();
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
  const absl::StatusOr<Turn> turn = TakeTurn({patience.deadline, {}});
  if (turn.ok()) SettleStaged();
  std::unique_ptr<FileUpload> over;  // of the other key: its end waits for the store
  std::lock_guard lock(mutex_);
  over = std::move(upload_);
  if (!turn.ok() && unsettled_) {
    failed_ = RefusedWith(EIO, uri_ + ": was renamed while a call that writes it hangs; write it again");
    ended_ = true;
  }
  if (content_.has_lost()) {
    failed_ = RefusedWith(EIO, uri_ + ": was renamed while it was written, and the staging folder had no room for it");
    ended_ = true;
  }
  key_ = now.key;
  uri_ = services_.store.Uri(key_);
  base_ = std::move(now);
  ++versions_;
  window_ = nullptr;
}

StagedRecord WrittenFile::RecordLocked() const {
  const bool is_whole = !content_.uses_base() && !content_.has_lost();
  return {.uri = uri_,
          .base = is_whole              ? ""
                  : content_.has_lost() ? "(parts of an upload)"
                                        : base_.etag,
          .size = content_.size(),
          .local = is_whole ? std::vector<ByteRange>() : content_.local_ranges(),
          .why = failed_.ok() ? "" : std::string(failed_.message())};
}

void WrittenFile::Park(const std::string& why) {
  const absl::StatusOr<Turn> turn = TakeTurn({std::chrono::steady_clock::now() + kParkPatience, {}});
  if (turn.ok()) SettleStaged();
  std::lock_guard lock(mutex_);
  if (!changed_ || unlinked_) return;
  failed_ = RefusedWith(EIO, why);
  ended_ = true;
  ParkLocked(why);
}

void WrittenFile::ParkLocked(const std::string& why) {
  changed_ = false;
  if (file_ == nullptr || content_.has_lost()) return;
  absl::Status kept = file_->Note(RecordLocked(), /*synced=*/true);
  if (kept.ok()) kept = file_->Sync();
  file_->Keep();
  kept_ = true;
  Log(LogLevel::kWarning, "mount",
      fmt::format("{}; its bytes are in {} ({}; millrace mount --recover lists such files)", why, file_->path(),
                  kept.ok() ? "on the disk" : std::string(ToStd(kept.message()))));
}

}  // namespace millrace
