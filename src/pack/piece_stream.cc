#include "pack/piece_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr size_t kMaxSlots = 8;
constexpr uint64_t kLeastPieceBytes = 64 << 10;

uint64_t AboutBytes(const MemoryBudget& memory) {
  return std::clamp(memory.limit() / 16, kLeastPieceBytes, kPieceBytes);
}

}  // namespace

PieceStream::PieceStream(ObjectStore& store, std::string key, Pieces pieces, MemoryBudget& memory, PutOptions options)
    : store_(store),
      key_(std::move(key)),
      pieces_(pieces),
      memory_(memory),
      most_slots_(std::clamp<size_t>(memory.limit() / 2 / pieces.largest(), 1, kMaxSlots)),
      options_(std::move(options)),
      owners_stop_(options_.stop),
      on_stop_(owners_stop_, [this] { stop_.request_stop(); }) {
  options_.stop = stop_.get_token();
}

absl::StatusOr<std::unique_ptr<PieceStream>> PieceStream::Open(ObjectStore& store, std::string key, uint64_t bytes,
                                                               MemoryBudget& memory, PutOptions options) {
  const Pieces pieces(bytes, 0, AboutBytes(memory), store.traits().pieces);
  std::unique_ptr<PieceStream> stream(new PieceStream(store, std::move(key), pieces, memory, std::move(options)));
  if (!stream->Whole()) {
    ASSIGN_OR_RETURN(stream->writer_, store.WritePieces(stream->key_, stream->options_));
  }
  return stream;
}

PieceStream::~PieceStream() {
  stop_.request_stop();
  (void)WaitForAll();
}

absl::Status PieceStream::WaitForAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return std::none_of(slots_.begin(), slots_.end(), [](auto& slot) { return slot->busy; }); });
  return status_;
}

// Finds or makes a buffer for the next piece, or waits for one.
absl::Status PieceStream::BeginPiece() {
  std::unique_lock lock(mutex_);
  while (true) {
    RETURN_IF_ERROR(status_);
    for (const auto& slot : slots_) {
      if (slot->busy) continue;
      filling_ = slot.get();
      filled_ = 0;
      return absl::OkStatus();
    }
    if (slots_.size() < most_slots_) {
      Reservation memory = memory_.TryReserve(pieces_.largest());
      if (memory) {
        slots_.push_back(std::make_unique<Slot>(pieces_.largest(), std::move(memory)));
        continue;
      }
      if (slots_.empty()) {
        return absl::ResourceExhaustedError(
            fmt::format("{}: writing needs {} of memory, and {} of {} are in use: raise --memory", store_.Uri(key_),
                        FormatSize(pieces_.largest()), FormatSize(memory_.used()), FormatSize(memory_.limit())));
      }
    }
    changed_.wait(lock);
  }
}

absl::Status PieceStream::Append(ByteSpan bytes) {
  while (!bytes.empty()) {
    if (piece_ == pieces_.count())
      return absl::InternalError(fmt::format("{}: more bytes than were announced", store_.Uri(key_)));
    if (filling_ == nullptr) RETURN_IF_ERROR(BeginPiece());
    const size_t length = std::min(bytes.size(), static_cast<size_t>(pieces_.At(piece_).length) - filled_);
    std::memcpy(filling_->buffer.data() + filled_, bytes.data(), length);
    filled_ += length;
    bytes = bytes.subspan(length);
    if (filled_ == pieces_.At(piece_).length) RETURN_IF_ERROR(EndPiece());
  }
  return absl::OkStatus();
}

absl::Status PieceStream::EndPiece() {
  const size_t index = piece_++;
  if (Whole()) return absl::OkStatus();  // Commit puts it
  Slot* const slot = std::exchange(filling_, nullptr);
  {
    std::lock_guard lock(mutex_);
    slot->busy = true;
  }
  writer_->Write(index, pieces_.At(index).offset, slot->buffer.span().first(filled_),
                 [this, slot](absl::Status status) {
                   std::lock_guard lock(mutex_);
                   slot->busy = false;
                   status_.Update(status);
                   changed_.notify_all();  // under the lock: the owner may be gone right after
                 });
  return absl::OkStatus();
}

absl::StatusOr<ObjectInfo> PieceStream::Commit() {
  if (piece_ < pieces_.count())
    return absl::InternalError(fmt::format("{}: fewer bytes than were announced", store_.Uri(key_)));
  if (Whole()) return PutBlocking(store_, key_, filling_->buffer.span().first(filled_), options_);
  RETURN_IF_ERROR(WaitForAll());
  return CommitBlocking(*writer_, pieces_.object_bytes());
}

}  // namespace millrace
