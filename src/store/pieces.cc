#include "store/pieces.h"

#include <algorithm>

namespace millrace {

namespace {

// The search tries so many numbers of pieces on each side of the ideal one. Stores that require pieces of one length
// (R2) take 10,000 of them; for a part of an absurd size the search must end, too.
constexpr uint64_t kMostTries = 10'000;

/// Returns the number of pieces that a part is divided into, which is about `ideal`. If possible, all pieces have the
/// same length, which some stores (R2) require of the parts of an upload.
uint64_t Divisor(uint64_t part_bytes, uint64_t ideal, uint64_t least_bytes) {
  const uint64_t most = part_bytes / least_bytes;
  ideal = std::clamp<uint64_t>(ideal, 1, most);
  for (uint64_t away = 0; away <= std::min(ideal / 4, kMostTries); ++away) {
    if (ideal + away <= most && part_bytes % (ideal + away) == 0) return ideal + away;
    if (part_bytes % (ideal - away) == 0) return ideal - away;
  }
  const auto last = [part_bytes](uint64_t count) {
    const uint64_t length = (part_bytes - 1) / count + 1;
    return (part_bytes - 1) % length + 1;
  };
  while (last(ideal) < least_bytes) --ideal;
  return ideal;
}

constexpr uint64_t kBytesInFlight = 64 << 20;

}  // namespace

Pieces::Pieces(uint64_t object_bytes, uint64_t part_bytes, uint64_t about, PieceLimits limits)
    : object_bytes_(object_bytes), part_bytes_(part_bytes < object_bytes ? part_bytes : 0) {
  do {
    Divide(std::max<uint64_t>(about, 1), std::max<uint64_t>(limits.least_bytes, 1));
    about *= 2;
  } while (count() > limits.most_pieces && length_ < object_bytes_);
}

void Pieces::Divide(uint64_t about, uint64_t least_bytes) {
  if (part_bytes_ == 0) {
    group_ = length_ = std::max(about, least_bytes);
  } else if (part_bytes_ < about / 2 || part_bytes_ < least_bytes) {
    const uint64_t needed = (least_bytes - 1) / part_bytes_ + 1;
    group_ = length_ = std::max(needed, about / part_bytes_) * part_bytes_;
  } else {
    const uint64_t pieces = Divisor(part_bytes_, (part_bytes_ + about / 2) / about, least_bytes);
    group_ = part_bytes_;
    length_ = (part_bytes_ - 1) / pieces + 1;
  }
}

size_t Pieces::IndexOf(uint64_t offset) const {
  return static_cast<size_t>(offset / group_ * per_group() + offset % group_ / length_);
}

ByteRange Pieces::At(size_t index) const {
  const uint64_t group = index / per_group() * group_;
  const uint64_t offset = group + index % per_group() * length_;
  return {offset, std::min({offset + length_, group + group_, object_bytes_}) - offset};
}

size_t PiecesInFlight(const Pieces& pieces) {
  return std::clamp<size_t>(kBytesInFlight / std::max<uint64_t>(pieces.largest(), 1), 2, 8);
}

bool Pieces::IsPart(size_t index) const {
  const ByteRange piece = At(index);
  return part_bytes_ != 0 && piece.offset % part_bytes_ == 0 &&
         piece.length == std::min(part_bytes_, object_bytes_ - piece.offset);
}

}  // namespace millrace
