#include "mount/written_content.h"

#include <algorithm>

namespace millrace {

namespace {

// Returns all bytes from `size` on.
ByteRange From(uint64_t size) {
  return {size, UINT64_MAX - size};
}

// Cuts a range into pieces of at least `about` bytes each, as even as they can be; one if it is shorter than that.
void Cut(ByteRange range, uint64_t about, bool copied, std::vector<WrittenContent::Piece>* pieces) {
  const uint64_t count = std::max<uint64_t>(1, range.length / about);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = range.length / count * i + std::min(i, range.length % count);
    const uint64_t end = range.length / count * (i + 1) + std::min(i + 1, range.length % count);
    pieces->push_back({{range.offset + begin, end - begin}, copied});
  }
}

}  // namespace

void WrittenContent::Wrote(ByteRange range, bool kept) {
  if (range.length == 0) return;
  changed_ = true;
  size_ = std::max(size_, range.end());
  changes_.Add(range);
  (kept ? local_ : lost_).Add(range);
  (kept ? lost_ : local_).Remove(range);
}

void WrittenContent::Truncate(uint64_t size) {
  if (size != size_) changed_ = true;
  size_ = size;
  base_end_ = std::min(base_end_, size);
  for (RangeSet* set : {&local_, &changes_, &lost_}) set->Remove(From(size));
}

void WrittenContent::Lose(ByteRange range) {
  for (const ByteRange& local : local_.Within(range)) {
    lost_.Add(local);
    changes_.Add(local);
  }
  local_.Remove(range);
}

void WrittenContent::Committed() {
  changed_ = false;
  base_end_ = size_;
  changes_ = RangeSet();
  lost_ = RangeSet();
}

std::vector<WrittenContent::Part> WrittenContent::Parts(ByteRange range) const {
  std::vector<Part> parts;
  if (range.offset >= size_) return parts;
  range.length = std::min(range.length, size_ - range.offset);
  const auto add = [&](Where where, uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    if (!parts.empty() && parts.back().where == where) {
      parts.back().range.length += end - begin;
    } else {
      parts.push_back({where, {begin, end - begin}});
    }
  };
  // Adds the bytes that lie in neither set, from `begin` to `end`.
  const auto add_rest = [&](uint64_t begin, uint64_t end) {
    add(Where::kBase, begin, std::min(end, std::max(begin, base_end_)));
    add(Where::kZeros, std::max(begin, base_end_), end);
  };
  std::vector<Part> known;
  for (const ByteRange& part : local_.Within(range)) known.push_back({Where::kLocal, part});
  for (const ByteRange& part : lost_.Within(range)) known.push_back({Where::kLost, part});
  std::sort(known.begin(), known.end(),
            [](const Part& one, const Part& other) { return one.range.offset < other.range.offset; });
  uint64_t at = range.offset;
  for (const Part& part : known) {
    add_rest(at, part.range.offset);
    add(part.where, part.range.offset, part.range.end());
    at = part.range.end();
  }
  add_rest(at, range.end());
  return parts;
}

std::vector<WrittenContent::Piece> WrittenContent::CommitPieces(const PieceLimits& limits, uint64_t least_copied,
                                                                uint64_t most_copied) const {
  std::vector<Piece> pieces;
  if (size_ == 0) return pieces;
  const uint64_t many = limits.most_pieces == UINT64_MAX ? 1 : size_ / (limits.most_pieces / 4) + 1;
  const uint64_t about = std::max({kPieceBytes, limits.least_bytes, many});
  const uint64_t about_copied = std::max(most_copied, many);
  // These ranges of the base are as they were.
  RangeSet kept;
  if (least_copied > 0 && base_end_ > 0) {
    kept.Add({0, base_end_});
    for (const ByteRange& change : changes_.Within({0, base_end_})) kept.Remove(change);
  }
  uint64_t at = 0;  // up to here the pieces are known
  for (ByteRange same : kept.Within({0, size_})) {
    // The bytes that are sent before it must be enough for a piece that is not the last.
    if (same.offset > at && same.offset - at < limits.least_bytes) {
      const uint64_t more = std::min(same.length, limits.least_bytes - (same.offset - at));
      same = {same.offset + more, same.length - more};
    }
    if (same.length < std::max(least_copied, limits.least_bytes)) continue;
    if (same.offset > at) Cut({at, same.offset - at}, about, false, &pieces);
    const uint64_t count = (same.length + about_copied - 1) / about_copied;
    Cut(same, same.length / count, true, &pieces);
    at = same.end();
  }
  if (at < size_) Cut({at, size_ - at}, about, false, &pieces);
  return pieces;
}

}  // namespace millrace
