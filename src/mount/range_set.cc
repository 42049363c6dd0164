#include "mount/range_set.h"

#include <algorithm>
#include <iterator>

namespace millrace {

void RangeSet::Add(ByteRange range) {
  if (range.length == 0) return;
  uint64_t begin = range.offset;
  uint64_t end = range.end();
  auto at = ends_.upper_bound(begin);
  if (at != ends_.begin() && std::prev(at)->second >= begin) --at;
  while (at != ends_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ends_.erase(at);
  }
  ends_.emplace(begin, end);
}

void RangeSet::Remove(ByteRange range) {
  if (range.length == 0) return;
  auto at = ends_.upper_bound(range.offset);
  if (at != ends_.begin() && std::prev(at)->second > range.offset) --at;
  while (at != ends_.end() && at->first < range.end()) {
    const auto [begin, end] = *at;
    at = ends_.erase(at);
    if (begin < range.offset) ends_.emplace(begin, range.offset);
    if (end > range.end()) at = ends_.emplace(range.end(), end).first;
  }
}

uint64_t RangeSet::bytes() const {
  uint64_t total = 0;
  for (const auto& [begin, end] : ends_) total += end - begin;
  return total;
}

uint64_t RangeSet::BytesIn(ByteRange range) const {
  uint64_t total = 0;
  for (const ByteRange& part : Within(range)) total += part.length;
  return total;
}

std::vector<ByteRange> RangeSet::Within(ByteRange range) const {
  std::vector<ByteRange> found;
  if (range.length == 0) return found;
  auto at = ends_.upper_bound(range.offset);
  if (at != ends_.begin() && std::prev(at)->second > range.offset) --at;
  for (; at != ends_.end() && at->first < range.end(); ++at) {
    const uint64_t begin = std::max(at->first, range.offset);
    found.push_back({begin, std::min(at->second, range.end()) - begin});
  }
  return found;
}

}  // namespace millrace
