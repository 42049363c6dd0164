#include "transfer/object_file.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kFirstAhead = uint64_t{1} << 20;
constexpr uint64_t kMostAhead = uint64_t{1} << 40;

// The range is asked for once.
ObjectReader::Source OneRequest(const ObjectInfo& object, ByteRange range) {
  return [request = std::optional(ObjectReader::Request{.object = object, .range = range})]() mutable {
    return absl::StatusOr<std::optional<ObjectReader::Request>>(std::exchange(request, std::nullopt));
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectFile>> ObjectFile::Open(ObjectStore& store, MemoryBudget& memory, std::string key,
                                                             const std::stop_token& stop) {
  ASSIGN_OR_RETURN(ObjectInfo info, HeadBlocking(store, std::move(key), stop));
  return std::make_unique<ObjectFile>(store, memory, std::move(info));
}

ObjectFile::ObjectFile(ObjectStore& store, MemoryBudget& memory, ObjectInfo info)
    : store_(store), memory_(memory), info_(std::move(info)) {}

size_t ObjectFile::ReadHeld(uint64_t offset, MutableByteSpan into) {
  if (offset < held_offset_ || offset - held_offset_ >= held_.size()) return 0;
  const ByteSpan found = held_.subspan(offset - held_offset_);
  const size_t count = std::min(found.size(), into.size());
  if (count > 0) std::memcpy(into.data(), found.data(), count);
  next_ = offset + count;
  return count;
}

absl::StatusOr<size_t> ObjectFile::Read(uint64_t offset, MutableByteSpan into, const std::stop_token& stop) {
  if (offset >= info_.size || into.empty()) return 0;
  into = into.first(std::min<uint64_t>(into.size(), info_.size - offset));
  const bool goes_on = offset == next_;
  size_t done = ReadHeld(offset, into);
  if (done == 0 && !goes_on) {
    ForgetAhead();
    RETURN_IF_ERROR(ReadAlone(offset, into, stop));
    done = into.size();
  }
  const std::stop_callback on_stop(stop, [ahead = stop_ahead_]() mutable { ahead.request_stop(); });
  while (done < into.size()) {
    const absl::StatusOr<size_t> more = ReadAhead(offset + done, into.subspan(done));
    if (!more.ok()) {
      ForgetAhead();
      return more.status();
    }
    done += *more;
  }
  next_ = offset + done;
  return done;
}

absl::Status ObjectFile::ReadAlone(uint64_t offset, MutableByteSpan into, const std::stop_token& stop) {
  const ByteRange range{offset, into.size()};
  if (range.length <= ObjectReader::PieceBytes(store_, memory_)) {
    GetOptions get;
    get.range = range;
    get.if_match = info_.etag;
    get.stop = stop;
    return GetBlocking(store_, info_.key, into, std::move(get)).status();
  }
  return ReadPieces(store_, memory_, {.object = info_, .range = range}, stop, [&](const ObjectReader::Piece& piece) {
    if (!piece.bytes.empty())
      std::memcpy(into.data() + (piece.offset - offset), piece.bytes.data(), piece.bytes.size());
    return absl::OkStatus();
  });
}

// Returns what the piece at `offset` has of `into`; there is always some.
absl::StatusOr<size_t> ObjectFile::ReadAhead(uint64_t offset, MutableByteSpan into) {
  for (;;) {
    if (const size_t count = ReadHeld(offset, into); count > 0) return count;
    if (ahead_ == nullptr || held_offset_ + held_.size() != offset) BeginAhead(offset, into.size());
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, ahead_->Next());
    if (piece) {
      held_offset_ = piece->offset;
      held_ = piece->bytes;
    } else {
      ahead_ = nullptr;  // this stretch is used up
      held_offset_ = offset;
      held_ = {};
    }
  }
}

void ObjectFile::BeginAhead(uint64_t offset, uint64_t least) {
  ahead_bytes_ = ahead_bytes_ == 0 ? kFirstAhead : std::min(ahead_bytes_ * 4, kMostAhead);
  ahead_bytes_ = std::max(ahead_bytes_, least);
  const ByteRange range{offset, std::min(ahead_bytes_, info_.size - offset)};
  held_offset_ = offset;
  held_ = {};
  ahead_ = nullptr;  // its memory is free for the next one
  ahead_ = std::make_unique<ObjectReader>(store_, memory_, OneRequest(info_, range), stop_ahead_.get_token());
}

void ObjectFile::ForgetAhead() {
  held_ = {};
  ahead_bytes_ = 0;
  ahead_ = nullptr;
  stop_ahead_ = std::stop_source();
}

}  // namespace millrace
