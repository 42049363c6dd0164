#include "mount/read_pattern.h"

#include <algorithm>
#include <bit>

namespace millrace {

namespace {

// Reads that are so far from the last one still follow it: the kernel sends several at a time, in any order.
constexpr uint64_t kNearBytes = uint64_t{2} << 20;
// Going back further than these, and than so many reads of its size, it reads here and there in one place.
constexpr uint64_t kReorderedBytes = uint64_t{512} << 10;
constexpr uint64_t kReorderedReads = 16;
// A stream that was not read among so many reads has ended.
constexpr uint64_t kForgottenAfter = 256;
// So many requests at least are in flight for a stream that is read ahead.
constexpr uint64_t kPiecesAhead = 4;

uint64_t BlockFloor(uint64_t offset) {
  return offset / ReadPattern::kBlockBytes * ReadPattern::kBlockBytes;
}

uint64_t BlockCeiling(uint64_t offset) {
  return BlockFloor(offset + ReadPattern::kBlockBytes - 1);
}

}  // namespace

ReadPattern::ReadPattern(uint64_t file_bytes, uint64_t max_ahead_bytes)
    : file_bytes_(file_bytes), max_ahead_(std::max(max_ahead_bytes, kBlockBytes)) {}

ReadAdvice ReadPattern::OnRead(uint64_t offset, uint64_t end) {
  ReadAdvice advice;
  ++reads_;
  Stream* found = Near(offset);
  Stream& stream = found != nullptr ? *found : Begin(end, advice);
  stream.used = reads_;
  stream.began = found != nullptr ? std::min(stream.began, offset) : offset;
  stream.read += end - offset;
  if (offset == 0) stream.streak = std::max({stream.streak, kStreak, end});
  if (end > stream.farthest) {
    stream.streak += end - std::max(offset, stream.farthest);
    stream.farthest = end;
  } else if (stream.farthest - end > std::max(kReorderedBytes, kReorderedReads * (end - offset))) {
    stream.streak = 0;
  }
  advice.in_blocks = stream.streak >= kStreak || file_bytes_ <= kBlockBytes;
  if (!advice.in_blocks) return advice;
  // One block, then as much again as was read.
  const uint64_t ahead = stream.streak > kStreak ? std::clamp(2 * stream.streak, kBlockBytes, max_ahead_) : 0;
  advice.until = std::min(file_bytes_, end + ahead);
  // The size is a power of two, so that programs that read the same bytes make the same requests.
  advice.piece_bytes = std::bit_floor(std::clamp(ahead / kPiecesAhead, kBlockBytes, kMaxPieceBytes));
  stream.held_from = stream.held_until == 0 ? BlockFloor(offset) : std::min(stream.held_from, BlockFloor(offset));
  // A piece may reach so far beyond.
  stream.held_until = std::max(stream.held_until, BlockCeiling(advice.until) + advice.piece_bytes);
  DropBehind(stream, offset, advice);
  // The kernel may have sent the last of its reads before others.
  const uint64_t rest = file_bytes_ - stream.held_from;
  if (stream.farthest == file_bytes_ && stream.read >= std::max(rest, file_bytes_ - stream.began)) {
    advice.finished = {stream.held_from, rest};
  }
  return advice;
}

ReadPattern::Stream* ReadPattern::Near(uint64_t offset) {
  Stream* nearest = nullptr;
  uint64_t least = kNearBytes;
  for (Stream& stream : streams_) {
    const uint64_t distance = std::max(offset, stream.farthest) - std::min(offset, stream.farthest);
    if (distance > least) continue;
    least = distance;
    nearest = &stream;
  }
  return nearest;
}

// Returns true if it is to be kept, rather than the place of one more read here or there.
bool ReadPattern::IsLive(const Stream& stream) const {
  return stream.streak >= kStreak && reads_ - stream.used <= kForgottenAfter;
}

// Begins a stream. If there is no room, it replaces one that is over, or else the one that was read longest ago.
ReadPattern::Stream& ReadPattern::Begin(uint64_t end, ReadAdvice& advice) {
  if (streams_.size() < kMaxStreams) {
    streams_.emplace_back();
  } else {
    const auto sooner = [this](const Stream& a, const Stream& b) {
      return IsLive(a) != IsLive(b) ? !IsLive(a) : a.used < b.used;
    };
    const auto over = std::min_element(streams_.begin(), streams_.end(), sooner);
    if (over->held_until > 0) advice.behind.push_back({over->held_from, over->held_until - over->held_from});
    std::iter_swap(over, streams_.end() - 1);
    streams_.back() = {};
  }
  Stream& stream = streams_.back();
  stream.farthest = end;
  return stream;
}

void ReadPattern::DropBehind(Stream& stream, uint64_t offset, ReadAdvice& advice) const {
  if (offset < kNearBytes) return;
  const uint64_t from = BlockFloor(offset - kNearBytes);
  if (from <= stream.held_from) return;
  advice.behind.push_back({stream.held_from, from - stream.held_from});
  stream.held_from = from;
}

}  // namespace millrace
