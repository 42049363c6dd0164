#include "shard/byte_gatherer.h"

#include <algorithm>
#include <utility>

namespace millrace {

std::optional<ByteSpan> ByteGatherer::Take(uint64_t size) {
  taken_ = {};
  if (held_.empty() && size <= chunk_.size()) {
    const ByteSpan piece = chunk_.first(size);
    chunk_ = chunk_.subspan(size);
    position_ += size;
    return piece;
  }
  const uint64_t more = std::min<uint64_t>(size - held_.size(), chunk_.size());
  held_.append(AsText(chunk_.first(more)));
  chunk_ = chunk_.subspan(more);
  if (held_.size() < size) return std::nullopt;
  taken_ = std::exchange(held_, {});
  position_ += size;
  return AsBytes(taken_);
}

}  // namespace millrace
