#include "store/stream_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kSmallPart = 64 << 10;
constexpr uint64_t kLargestSmallPart = 1 << 20;
constexpr int kSmallPartsPerSize = 256;
constexpr uint64_t kFirstPart = 8 << 20;
constexpr uint64_t kLargestPart = 1 << 30;
constexpr int kPartsPerSize = 1000;
constexpr uint64_t kPartBytesInFlight = 32 << 20;
// These two apply to an object whose length is known.
constexpr uint64_t kMaxHeld = 8;
constexpr uint64_t kPartsOfBudget = 16;

}  // namespace

uint64_t PartSize(int number, PieceLimits limits) {
  if (limits.least_bytes <= 1)
    return std::min(kLargestSmallPart, kSmallPart << std::min((number - 1) / kSmallPartsPerSize, 8));
  return std::min(kLargestPart, kFirstPart << ((number - 1) / kPartsPerSize));
}

int PartsHeld(uint64_t part_size) {
  return 1 + static_cast<int>(std::clamp<uint64_t>(kPartBytesInFlight / part_size, 2, 4));
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> StreamWriter::Open(ObjectStore& store, std::string key,
                                                                 PutOptions options) {
  std::unique_ptr<StreamWriter> writer(new StreamWriter(store, std::move(key), std::move(options), std::nullopt));
  ASSIGN_OR_RETURN(writer->writer_, store.WritePieces(writer->key_, writer->options_));
  return writer;
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> StreamWriter::Open(ObjectStore& store, std::string key,
                                                                 PutOptions options, uint64_t bytes,
                                                                 MemoryBudget& memory) {
  const uint64_t about = std::clamp(memory.limit() / kPartsOfBudget, kSmallPart, kPieceBytes);
  const Pieces pieces(bytes, 0, about, store.traits().pieces);
  std::unique_ptr<StreamWriter> writer(
      new StreamWriter(store, std::move(key), std::move(options), Known{pieces, memory}));
  if (pieces.count() > 1) {
    ASSIGN_OR_RETURN(writer->writer_, store.WritePieces(writer->key_, writer->options_));
  }
  return writer;
}

StreamWriter::StreamWriter(ObjectStore& store, std::string key, PutOptions options, std::optional<Known> known)
    : store_(store),
      key_(std::move(key)),
      known_(std::move(known)),
      options_(std::move(options)),
      calls_(options_.stop) {
  options_.stop = calls_.stop();
}

absl::Status StreamWriter::BeginPart() {
  if (known_) {
    if (written_ == known_->pieces.object_bytes()) {
      return absl::InternalError(fmt::format("{}: more bytes than were announced", store_.Uri(key_)));
    }
    const uint64_t held = known_->memory.limit() / 2 / known_->pieces.largest();
    return TakePart(known_->pieces.At(parts_).length, std::clamp<uint64_t>(held, 1, kMaxHeld));
  }
  if (parts_ >= store_.traits().pieces.most_pieces) {
    return calls_.Fail(
        absl::ResourceExhaustedError(fmt::format("{}: is too large for the store: {} are written and {} parts used up",
                                                 store_.Uri(key_), FormatSize(written_), parts_)));
  }
  const uint64_t size = PartSize(static_cast<int>(parts_) + 1, store_.traits().pieces);
  return TakePart(size, static_cast<size_t>(PartsHeld(size)));
}

// Waits until fewer than `held` are in flight, and there is memory for one more.
absl::Status StreamWriter::TakePart(uint64_t size, size_t held) {
  filled_ = 0;
  for (;; held = calls_.count()) {
    RETURN_IF_ERROR(calls_.WaitForRoom(held));
    std::erase_if(spare_, [size](const Part& part) { return part.bytes.size() != size; });
    if (!spare_.empty()) {
      part_ = std::move(spare_.back());
      spare_.pop_back();
      return absl::OkStatus();
    }
    part_.memory = known_ ? known_->memory.TryReserve(size) : Reservation();
    if (!known_ || part_.memory) {
      part_.bytes = Buffer(size);
      return absl::OkStatus();
    }
    if (calls_.count() == 0) {
      return absl::ResourceExhaustedError(
          fmt::format("{}: writing needs {} of memory, and {} of {} are in use: raise --memory", store_.Uri(key_),
                      FormatSize(size), FormatSize(known_->memory.used()), FormatSize(known_->memory.limit())));
    }
  }
}

absl::Status StreamWriter::Append(ByteSpan bytes) {
  while (!bytes.empty()) {
    // A full part is sent only when more follows: an object of one part is a plain Put.
    if (filled_ > 0 && filled_ == part_.bytes.size() && writer_ != nullptr) SendPart();
    if (part_.bytes.size() == filled_) RETURN_IF_ERROR(BeginPart());
    const size_t take = std::min(bytes.size(), part_.bytes.size() - filled_);
    std::memcpy(part_.bytes.data() + filled_, bytes.data(), take);
    filled_ += take;
    written_ += take;
    bytes = bytes.subspan(take);
  }
  return absl::OkStatus();
}

void StreamWriter::SendPart() {
  const ByteSpan body = part_.bytes.span().first(std::exchange(filled_, 0));
  const uint64_t offset = std::exchange(sent_, sent_ + body.size());
  auto written = [this, part = std::exchange(part_, Part())](absl::Status status) mutable {
    spare_.push_back(std::move(part));
    return status;
  };
  writer_->Write(parts_++, offset, body, std::nullopt, calls_.Add<absl::Status>(std::move(written)));
}

absl::StatusOr<ObjectInfo> StreamWriter::Commit() {
  if (known_ && written_ < known_->pieces.object_bytes()) {
    return absl::InternalError(fmt::format("{}: fewer bytes than were announced", store_.Uri(key_)));
  }
  if (parts_ == 0) {
    writer_.reset();
    return PutBlocking(store_, key_, part_.bytes.span().first(filled_), options_);
  }
  if (filled_ > 0) SendPart();
  RETURN_IF_ERROR(calls_.WaitForAll());
  return CommitBlocking(*writer_, written_);
}

}  // namespace millrace
