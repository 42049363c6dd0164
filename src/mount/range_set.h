#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.h"

namespace millrace {

/// Holds a set of bytes of a file, as ranges that neither touch nor overlap. Not thread-safe, no I/O.
class RangeSet {
 public:
  void Add(ByteRange range);
  void Remove(ByteRange range);

  bool empty() const { return ends_.empty(); }
  /// Returns how many bytes are in the set.
  uint64_t bytes() const;
  bool Contains(ByteRange range) const { return range.length == 0 || BytesIn(range) == range.length; }
  /// Returns how many bytes of the range are in the set.
  uint64_t BytesIn(ByteRange range) const;
  /// Returns the bytes of the range that are in the set, in ascending order.
  std::vector<ByteRange> Within(ByteRange range) const;

 private:
  std::map<uint64_t, uint64_t> ends_;  // by the beginning
};

}  // namespace millrace
