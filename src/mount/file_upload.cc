#include "mount/file_upload.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mount/mount_errno.h"
#include "store/piece_copier.h"
#include "store/pieces.h"
#include "store/stream_writer.h"

namespace millrace {

namespace {

// A small file holds no more than it needs.
constexpr uint64_t kFirstRoom = uint64_t{128} << 10;
// A disk writes so many bytes at a time about as fast as more.
constexpr uint64_t kKeptBytes = uint64_t{2} << 20;

}  // namespace

struct FileUpload::Part {
  Reservation memory;
  Buffer bytes;
  uint64_t filled = 0;
  uint64_t most = 0;  // bytes of a full one
  bool arrived = false;
  int keeping = 0;  // calls of a Keep that read it
};

FileUpload::FileUpload(ObjectStore& store, MemoryBudget& memory, std::string key, PutOptions options,
                       MakeRoom make_room)
    : store_(store),
      memory_(memory),
      key_(std::move(key)),
      uri_(store.Uri(key_)),
      make_room_(std::move(make_room)),
      options_(std::move(options)) {
  options_.stop = stop_.get_token();
}

FileUpload::~FileUpload() {
  stop_.request_stop();
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ == 0 && keeping_ == 0; });
}

uint64_t FileUpload::written() const {
  std::lock_guard lock(mutex_);
  return written_;
}

uint64_t FileUpload::sent() const {
  std::lock_guard lock(mutex_);
  return written_ - (part_ == nullptr ? 0 : part_->filled);
}

bool FileUpload::finishing() const {
  std::lock_guard lock(mutex_);
  return phase_ != Phase::kOpen;
}

void FileUpload::set_modified_ms(int64_t modified_ms) {
  std::lock_guard lock(mutex_);
  options_.modified_ms = modified_ms;
}

// The first error is kept, but an interruption is none.
absl::Status FileUpload::Fail(absl::Status status) {
  if (absl::IsCancelled(status)) return status;
  // The store's disk, or its quota: the budget is Grow's.
  if (absl::IsResourceExhausted(status)) status = RefusedWith(ENOSPC, std::string(status.message()));
  if (status_.ok()) status_ = std::move(status);
  stop_.request_stop();
  return status_;
}

// Ask again whenever the lock was released: another thread may have begun Finish, and a part that is filled after that
// would never be sent.
absl::Status FileUpload::CheckOpen() const {
  RETURN_IF_ERROR(status_);
  if (phase_ == Phase::kOpen) return absl::OkStatus();
  return RefusedWith(EIO, uri_ + ": was made visible by close or fsync; what is written after that is not kept");
}

// Waits until `done()`. Each answer of the store extends the deadline.
template <typename Done>
absl::Status FileUpload::WaitWhileAnswered(Lock& lock, const Patience& patience, Done done) {
  const auto limit = patience.deadline - std::chrono::steady_clock::now();
  Patience next = patience;
  for (;;) {
    const uint64_t before = answered_;
    RETURN_IF_ERROR(next.Wait(lock, changed_, uri_, [&] { return done() || answered_ != before; }));
    if (done()) return absl::OkStatus();
    next.deadline = std::chrono::steady_clock::now() + limit;
  }
}

absl::StatusOr<size_t> FileUpload::Write(uint64_t offset, ByteSpan bytes, const Patience& patience, const Keep& keep) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(CheckOpen());
  if (offset != written_) {
    return Fail(RefusedWith(EINVAL, uri_ + ": can only be written from its beginning to its end; write the file "
                                           "elsewhere and copy it, or mount without --no-staging"));
  }
  const size_t wanted = bytes.size();
  while (!bytes.empty()) {
    RETURN_IF_ERROR(SendFullPart(lock));
    if (part_ == nullptr) {
      const absl::Status room = NextPart(lock, patience);
      if (absl::IsCancelled(room) && bytes.size() < wanted) break;
      RETURN_IF_ERROR(room);
    }
    if (part_->filled == part_->bytes.size()) {
      if (absl::Status grown = Grow(); !grown.ok()) return Fail(std::move(grown));
    }
    const size_t take = std::min<uint64_t>(bytes.size(), part_->bytes.size() - part_->filled);
    std::memcpy(part_->bytes.data() + part_->filled, bytes.data(), take);
    part_->filled += take;
    written_ += take;
    bytes = bytes.subspan(take);
    PassToKeep(keep);
  }
  return wanted - bytes.size();
}

// Only of a part that has all its memory: what is smaller moves.
void FileUpload::PassToKeep(const Keep& keep) {
  if (!keep) kept_ = written_;
  if (part_->bytes.size() < part_->most) return;
  const uint64_t end = part_->filled == part_->most ? written_ : written_ / kKeptBytes * kKeptBytes;
  if (end <= kept_) return;
  ++keeping_;
  ++part_->keeping;
  const ByteSpan bytes = ByteSpan(part_->bytes.span()).subspan(kept_ - (written_ - part_->filled), end - kept_);
  keep({.offset = std::exchange(kept_, end),
        .bytes = bytes,
        .is_awaited = [this, most = part_->most] { return IsAwaited(most); },
        .done =
            [this, part = part_] {
              std::lock_guard lock(mutex_);
              --keeping_;
              if (--part->keeping == 0 && part->arrived) {
                --lingering_;
                Recycle(part);
              }
              ++answered_;
              changed_.notify_all();  // under the lock: the owner may be gone right after
            }});
}

bool FileUpload::IsAwaited(uint64_t part_bytes) const {
  std::lock_guard lock(mutex_);
  return lingering_ > 0 && in_flight_ + lingering_ + 1 >= PartsHeld(part_bytes);
}

ByteSpan FileUpload::Unkept() const {
  std::lock_guard lock(mutex_);
  if (part_ == nullptr) return {};
  return ByteSpan(part_->bytes.span()).subspan(part_->filled - (written_ - kept_), written_ - kept_);
}

void FileUpload::SetKept() {
  std::lock_guard lock(mutex_);
  kept_ = written_;
}

void FileUpload::Patch(uint64_t offset, ByteSpan bytes) {
  std::lock_guard lock(mutex_);
  const ByteRange range{offset, bytes.size()};
  for (SentPiece& piece : sent_) {
    if (piece.range.offset < range.end() && range.offset < piece.range.end()) piece.stale = true;
  }
  if (part_ == nullptr) return;
  const uint64_t begin = written_ - part_->filled;
  const uint64_t from = std::max(begin, offset);
  if (from >= range.end()) return;
  std::memcpy(part_->bytes.data() + (from - begin), bytes.data() + (from - offset), range.end() - from);
}

ByteRange FileUpload::SentPart(uint64_t offset) const {
  std::lock_guard lock(mutex_);
  for (const SentPiece& piece : sent_) {
    if (piece.range.offset <= offset && offset < piece.range.end()) return piece.range;
  }
  return {};
}

std::vector<ByteRange> FileUpload::ArrivedParts() const {
  std::lock_guard lock(mutex_);
  std::vector<ByteRange> arrived;
  for (size_t i = 1; i + 1 < sent_.size(); ++i) {
    if (sent_[i].arrived && !sent_[i].stale) arrived.push_back(sent_[i].range);
  }
  return arrived;
}

// A full part is sent only if more follows: a file of one part is a plain Put.
absl::Status FileUpload::SendFullPart(Lock& lock) {
  if (part_ == nullptr || part_->filled < part_->most) return absl::OkStatus();
  RETURN_IF_ERROR(OpenWriter());
  SendPart(lock);
  return CheckOpen();
}

absl::Status FileUpload::OpenWriter() {
  if (writer_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<PieceWriter>> writer = store_.WritePieces(key_, options_);
  if (!writer.ok()) return Fail(writer.status());
  writer_ = *std::move(writer);
  return absl::OkStatus();
}

// Waits until there is room for one more part of `bytes`, and takes `room` of it for now.
absl::StatusOr<std::shared_ptr<FileUpload::Part>> FileUpload::TakeRoom(Lock& lock, const Patience& patience,
                                                                       uint64_t bytes, uint64_t room) {
  auto part = std::make_shared<Part>();
  const absl::Status waited = WaitWhileAnswered(lock, patience, [&] {
    if (!status_.ok() || phase_ != Phase::kOpen) return true;
    if (in_flight_ + lingering_ >= PartsHeld(bytes)) return false;
    if (const std::shared_ptr<Part> spare = std::exchange(spare_, nullptr);
        spare != nullptr && spare->bytes.size() == room) {
      part = spare;
      return true;
    }
    // The memory of parts in flight comes back by itself; blocks go only if nothing else will.
    if (in_flight_ + lingering_ > 0) return memory_.TryExtend(&part->memory, room);
    (void)Reserve(*part, room);
    return true;
  });
  if (!waited.ok()) return Fail(waited);
  RETURN_IF_ERROR(CheckOpen());
  if (!part->memory) return Fail(RefusedWith(ENOMEM, uri_ + ": there is no memory to write it; raise --memory"));
  if (part->bytes.size() != room) part->bytes = Buffer(room);
  part->filled = 0;
  part->most = bytes;
  part->arrived = false;
  return part;
}

// Takes room for the part that comes next in the order of the file.
absl::Status FileUpload::NextPart(Lock& lock, const Patience& patience) {
  if (sent_.size() >= store_.traits().pieces.most_pieces) {
    return Fail(RefusedWith(EFBIG, uri_ + ": is too large for the store"));
  }
  const uint64_t most = PartSize(static_cast<int>(sent_.size()) + 1, store_.traits().pieces);
  ASSIGN_OR_RETURN(part_, TakeRoom(lock, patience, most, sent_.empty() ? std::min(kFirstRoom, most) : most));
  return absl::OkStatus();
}

// Reserves so many more bytes for the part. Bytes that are read again cost a request; bytes that a program has written
// are nowhere else.
bool FileUpload::Reserve(Part& part, uint64_t bytes) {
  while (!memory_.TryExtend(&part.memory, bytes)) {
    if (!make_room_ || make_room_(bytes) == 0) return false;
  }
  return true;
}

absl::Status FileUpload::Grow() {
  const uint64_t room = std::min<uint64_t>(part_->most, part_->bytes.size() * 4);
  if (!Reserve(*part_, room - part_->bytes.size())) {
    return RefusedWith(ENOMEM, uri_ + ": there is no memory to write it; raise --memory");
  }
  Buffer larger(room);
  std::memcpy(larger.data(), part_->bytes.data(), part_->filled);
  part_->bytes = std::move(larger);
  return absl::OkStatus();
}

// Sends the part that was filled last, and is the next one in the order of the file.
void FileUpload::SendPart(Lock& lock) {
  const std::shared_ptr<Part> part = std::exchange(part_, nullptr);
  sent_.push_back({.range = {written_ - part->filled, part->filled}});
  Send(lock, sent_.size() - 1, part);
}

void FileUpload::Send(Lock& lock, size_t index, const std::shared_ptr<Part>& part) {
  ++in_flight_;
  const uint64_t offset = sent_[index].range.offset;
  PieceWriter& writer = *writer_;
  lock.unlock();  // a part that is refused is answered within the call
  writer.Write(index, offset, ByteSpan(part->bytes.span()).first(part->filled), std::nullopt,
               [this, index, part](absl::Status status) {
                 std::lock_guard callback_lock(mutex_);
                 part->arrived = true;
                 if (part->keeping > 0) {
                   ++lingering_;
                 } else {
                   Recycle(part);
                 }
                 OnSent(index, std::move(status));
               });
  lock.lock();
}

void FileUpload::Recycle(const std::shared_ptr<Part>& part) {
  if (KeepsSpare(*part)) {
    spare_ = part;
  } else {
    part->bytes = Buffer();
    part->memory = Reservation();  // before a writer that waits for room looks
  }
}

// While the program writes on, and the budget has much left.
bool FileUpload::KeepsSpare(const Part& part) const {
  return phase_ == Phase::kOpen && spare_ == nullptr && part.filled == part.most &&
         memory_.used() < memory_.limit() / 2;
}

void FileUpload::OnSent(size_t index, absl::Status status) {
  sent_[index].arrived = status.ok();
  if (!status.ok()) (void)Fail(std::move(status));
  --in_flight_;
  ++answered_;
  changed_.notify_all();  // under the lock: the owner may be gone right after
}

// ---- The end

// Appends what Write has not taken.
absl::Status FileUpload::LoadRest(Lock& lock, uint64_t bytes, const Load& load, const Patience& patience) {
  while (written_ < bytes) {
    RETURN_IF_ERROR(SendFullPart(lock));
    if (part_ == nullptr) RETURN_IF_ERROR(NextPart(lock, patience));
    if (part_->filled == part_->bytes.size()) {
      if (absl::Status grown = Grow(); !grown.ok()) return Fail(std::move(grown));
    }
    const std::shared_ptr<Part> part = part_;
    const uint64_t take = std::min(bytes - written_, part->bytes.size() - part->filled);
    lock.unlock();  // the answers to parts in flight must not wait for it
    absl::Status loaded = load(written_, part->bytes.span().subspan(part->filled, take));
    lock.lock();
    if (!loaded.ok()) return Fail(std::move(loaded));
    part->filled += take;
    written_ += take;
    kept_ = written_;  // it came from there
  }
  return absl::OkStatus();
}

// Sends part `index` with bytes that are loaded now.
absl::Status FileUpload::SendLoaded(Lock& lock, size_t index, const Load& load, const Patience& patience) {
  const ByteRange range = sent_[index].range;
  ASSIGN_OR_RETURN(const std::shared_ptr<Part> part, TakeRoom(lock, patience, range.length, range.length));
  lock.unlock();
  absl::Status loaded = load(range.offset, part->bytes.span());
  lock.lock();
  if (!loaded.ok()) return Fail(std::move(loaded));
  part->filled = range.length;
  sent_[index].stale = sent_[index].arrived = false;
  Send(lock, index, part);
  return absl::OkStatus();
}

// Sends the parts again whose bytes have changed since they were sent.
absl::Status FileUpload::SendStale(Lock& lock, const Load& load, const Patience& patience) {
  for (size_t index = 0; index < sent_.size(); ++index) {
    if (!sent_[index].stale) continue;
    // If two parts of one number were in flight, either could be the one that counts.
    const absl::Status waited =
        WaitWhileAnswered(lock, patience, [&] { return !status_.ok() || sent_[index].arrived; });
    if (!waited.ok()) return Fail(waited);
    RETURN_IF_ERROR(status_);
    RETURN_IF_ERROR(SendLoaded(lock, index, load, patience));
  }
  return absl::OkStatus();
}

// Begins the call that makes the object visible, when nothing is in flight any more.
void FileUpload::BeginFinish(Lock& lock) {
  phase_ = Phase::kCommitting;
  ++in_flight_;
  const uint64_t bytes = written_;
  std::shared_ptr<Part> part = part_;
  if (writer_ == nullptr && part == nullptr) part = std::make_shared<Part>();
  PutCallback done = [this, part](absl::StatusOr<ObjectInfo> result) {
    std::lock_guard callback_lock(mutex_);
    if (!result.ok()) (void)Fail(result.status());
    result_ = std::move(result);
    --in_flight_;
    ++answered_;
    changed_.notify_all();
  };
  PieceWriter* const writer = writer_.get();
  const PutOptions options = options_;
  lock.unlock();
  if (writer != nullptr) {
    writer->Commit(bytes, std::move(done));
  } else {
    store_.Put(key_, ByteSpan(part->bytes.span()).first(part->filled), options, std::move(done));
  }
  lock.lock();
}

absl::StatusOr<ObjectInfo> FileUpload::Finish(const Patience& patience) {
  Lock lock(mutex_);
  return End(lock, patience);
}

absl::StatusOr<ObjectInfo> FileUpload::Finish(uint64_t bytes, const Load& load, const Patience& patience) {
  Lock lock(mutex_);
  if (phase_ == Phase::kOpen && status_.ok()) {
    RETURN_IF_ERROR(LoadRest(lock, bytes, load, patience));
    RETURN_IF_ERROR(SendStale(lock, load, patience));
  }
  return End(lock, patience);
}

bool FileUpload::CopiesPieces() {
  std::lock_guard lock(mutex_);
  return OpenWriter().ok() && dynamic_cast<PieceCopier*>(writer_.get()) != nullptr;
}

absl::Status FileUpload::CopyPiece(Lock& lock, size_t index, const ObjectInfo& base, const Patience& patience) {
  constexpr int kCopiedAtOnce = 8;
  const absl::Status waited =
      WaitWhileAnswered(lock, patience, [&] { return !status_.ok() || in_flight_ < kCopiedAtOnce; });
  if (!waited.ok()) return Fail(waited);
  RETURN_IF_ERROR(status_);
  ++in_flight_;
  const ByteRange range = sent_[index].range;
  auto& writer = dynamic_cast<PieceCopier&>(*writer_);
  lock.unlock();
  writer.Copy(index, range.offset, base, range, [this, index](absl::Status status) {
    std::lock_guard callback_lock(mutex_);
    OnSent(index, std::move(status));
  });
  lock.lock();
  return absl::OkStatus();
}

absl::StatusOr<ObjectInfo> FileUpload::FinishCopied(const std::vector<WrittenContent::Piece>& pieces,
                                                    const ObjectInfo& base, const Load& load,
                                                    const Patience& patience) {
  Lock lock(mutex_);
  if (phase_ == Phase::kOpen && status_.ok()) {
    RETURN_IF_ERROR(OpenWriter());
    sent_.clear();
    for (const WrittenContent::Piece& piece : pieces) sent_.push_back({.range = piece.range});
    for (size_t index = 0; index < pieces.size(); ++index) {
      if (pieces[index].copied) RETURN_IF_ERROR(CopyPiece(lock, index, base, patience));
    }
    for (size_t index = 0; index < pieces.size(); ++index) {
      if (!pieces[index].copied) RETURN_IF_ERROR(SendLoaded(lock, index, load, patience));
    }
    kept_ = written_ = pieces.back().range.end();
  }
  return End(lock, patience);
}

absl::StatusOr<ObjectInfo> FileUpload::FinishPieces(const std::vector<WrittenContent::Piece>& pieces, const Load& load,
                                                    const Patience& patience) {
  Lock lock(mutex_);
  const bool is_put = pieces.size() <= 1;
  if (is_put) writer_.reset();  // CopiesPieces has made it
  while (phase_ == Phase::kOpen && status_.ok() && sent_.size() < pieces.size() && part_ == nullptr) {
    const ByteRange range = pieces[sent_.size()].range;
    if (!is_put) RETURN_IF_ERROR(OpenWriter());
    ASSIGN_OR_RETURN(const std::shared_ptr<Part> part, TakeRoom(lock, patience, range.length, range.length));
    lock.unlock();
    absl::Status loaded = load(range.offset, part->bytes.span());
    lock.lock();
    if (!loaded.ok()) return Fail(std::move(loaded));
    part->filled = range.length;
    kept_ = written_ = range.end();
    part_ = part;
    if (!is_put) SendPart(lock);
  }
  return End(lock, patience);
}

absl::StatusOr<ObjectInfo> FileUpload::End(Lock& lock, const Patience& patience) {
  spare_ = nullptr;
  if (phase_ == Phase::kOpen && status_.ok()) {
    phase_ = Phase::kDraining;
    if (writer_ != nullptr && part_ != nullptr) SendPart(lock);
  }
  const auto has_ended = [this] { return !status_.ok() || phase_ == Phase::kCommitting || in_flight_ == 0; };
  absl::Status waited = WaitWhileAnswered(lock, patience, has_ended);
  if (waited.ok() && status_.ok() && phase_ == Phase::kDraining) BeginFinish(lock);
  if (waited.ok()) {
    waited = WaitWhileAnswered(lock, patience, [this] { return !status_.ok() || result_.has_value(); });
  }
  if (!waited.ok()) return Fail(std::move(waited));
  RETURN_IF_ERROR(status_);
  return *result_;
}

}  // namespace millrace
