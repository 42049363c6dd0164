#include "mount/file_upload.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mount/mount_errno.h"
#include "store/stream_writer.h"

namespace millrace {

namespace {

// Of a small file no more is held than it needs.
constexpr uint64_t kFirstRoom = uint64_t{128} << 10;

}  // namespace

struct FileUpload::Part {
  Reservation memory;
  Buffer bytes;
  uint64_t filled = 0;
  uint64_t most = 0;  // bytes of a full one
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
  changed_.wait(lock, [this] { return in_flight_ == 0; });
}

uint64_t FileUpload::size() const {
  std::lock_guard lock(mutex_);
  return written_;
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

// To be asked again whenever the lock was released: another thread may have begun Finish, and a part that is filled
// after that would never be sent.
absl::Status FileUpload::CheckOpen() const {
  RETURN_IF_ERROR(status_);
  if (phase_ == Phase::kOpen) return absl::OkStatus();
  return RefusedWith(EIO, uri_ + ": was made visible by close or fsync; what is written after that is not kept");
}

absl::StatusOr<size_t> FileUpload::Write(uint64_t offset, ByteSpan bytes, const Patience& patience) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(CheckOpen());
  if (offset != written_) {
    return Fail(RefusedWith(EINVAL, uri_ + ": can only be written from its beginning to its end; write the file "
                                           "elsewhere and copy it"));
  }
  const size_t wanted = bytes.size();
  while (!bytes.empty()) {
    // A full part is sent only if more follows: a file of one part is a plain Put.
    if (part_ != nullptr && part_->filled == part_->most) {
      if (writer_ == nullptr) {
        absl::StatusOr<std::unique_ptr<PieceWriter>> writer = store_.WritePieces(key_, options_);
        if (!writer.ok()) return Fail(writer.status());
        writer_ = *std::move(writer);
      }
      SendPart(lock);
      RETURN_IF_ERROR(CheckOpen());
    }
    if (part_ == nullptr) {
      const absl::Status room = TakeRoom(lock, patience);
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
  }
  return wanted - bytes.size();
}

// Waits until there is room for one more part.
absl::Status FileUpload::TakeRoom(Lock& lock, const Patience& patience) {
  const uint64_t most = PartSize(static_cast<int>(sent_) + 1, store_.traits().pieces);
  if (sent_ >= store_.traits().pieces.most_pieces) {
    return Fail(RefusedWith(EFBIG, uri_ + ": is too large for the store"));
  }
  auto part = std::make_shared<Part>();
  part->most = most;
  const uint64_t room = sent_ == 0 ? std::min(kFirstRoom, most) : most;
  const absl::Status waited = patience.Wait(lock, changed_, uri_, [&] {
    if (!status_.ok() || phase_ != Phase::kOpen) return true;
    if (in_flight_ >= PartsHeld(most)) return false;
    // The memory of parts in flight comes back by itself; blocks go only if nothing else will.
    if (in_flight_ > 0) return memory_.TryExtend(&part->memory, room);
    (void)Reserve(*part, room);
    return true;
  });
  if (!waited.ok()) return Fail(waited);
  RETURN_IF_ERROR(CheckOpen());
  if (!part->memory) return Fail(RefusedWith(ENOMEM, uri_ + ": there is no memory to write it; raise --memory"));
  part->bytes = Buffer(room);
  part_ = std::move(part);
  return absl::OkStatus();
}

// So many more bytes for the part. What is read again costs a request; what a program has written is nowhere else.
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

void FileUpload::SendPart(Lock& lock) {
  const std::shared_ptr<Part> part = std::exchange(part_, nullptr);
  ++in_flight_;
  const size_t index = sent_++;
  const uint64_t offset = written_ - part->filled;
  PieceWriter& writer = *writer_;
  lock.unlock();  // a part that is refused is answered within the call
  writer.Write(index, offset, ByteSpan(part->bytes.span()).first(part->filled), std::nullopt,
               [this, part](absl::Status status) {
                 std::lock_guard callback_lock(mutex_);
                 if (!status.ok()) (void)Fail(std::move(status));
                 part->bytes = Buffer();
                 part->memory = Reservation();  // before a writer that waits for room looks
                 --in_flight_;
                 changed_.notify_all();  // under the lock: the owner may be gone right after
               });
  lock.lock();
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
  if (phase_ == Phase::kOpen && status_.ok()) {
    phase_ = Phase::kDraining;
    if (writer_ != nullptr && part_ != nullptr) SendPart(lock);
  }
  const auto settled = [this] { return !status_.ok() || phase_ == Phase::kCommitting || in_flight_ == 0; };
  absl::Status waited = patience.Wait(lock, changed_, uri_, settled);
  if (waited.ok() && status_.ok() && phase_ == Phase::kDraining) BeginFinish(lock);
  if (waited.ok()) {
    waited = patience.Wait(lock, changed_, uri_, [this] { return !status_.ok() || result_.has_value(); });
  }
  if (!waited.ok()) return Fail(std::move(waited));
  RETURN_IF_ERROR(status_);
  return *result_;
}

}  // namespace millrace
