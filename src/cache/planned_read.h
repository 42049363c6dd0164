#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace millrace {

/// Says who uses a range that is kept, and when it is used again. No wrong byte is read, whatever the hints say.
struct UseHints {
  /// No use is known. (The largest number but one, so that sums with it do not wrap.)
  static constexpr uint64_t kNever = uint64_t{1} << 62;
  /// Reads without a plan have this `job`, and share one part of a cache.
  static constexpr uint32_t kUnplanned = 1;
  /// Ranges that stay have this `job`, whatever job reads them.
  static constexpr uint32_t kPinned = 2;

  /// 0: nobody's. Else the reads of one plan, in any process: their numbers can be compared.
  uint32_t job = 0;
  /// With a plan, a byte of the range is read next at this position. kUnplanned: UnplannedUse.
  uint64_t next_use = kNever;
  friend bool operator==(const UseHints&, const UseHints&) = default;
};

/// Describes one read of a plan. Positions count on from epoch to epoch, for all ranks together.
struct PlannedRead {
  uint32_t job = 0;     // greater than UseHints::kPinned
  uint64_t use = 0;     // the position that the read is for
  uint64_t period = 1;  // positions of an epoch; > 0
  /// Ranges of the object, ascending and without overlaps, that are kept or removed as a whole.
  struct Span {
    ByteRange range;
    /// A byte of the range is read next at this position, by whatever read.
    uint64_t next_use = UseHints::kNever;
    /// A byte of a longer range around it, such as its extent, is read next at this position. It is for a range in the
    /// cache that has more than this one. At most next_use.
    uint64_t around_use = UseHints::kNever;
    friend bool operator==(const Span&, const Span&) = default;
  };
  std::vector<Span> spans;
  /// Other reads may want parts of the spans before next_use, which does not know of them.
  bool shared = false;
  /// The bytes that are read are to stay in the cache.
  bool pinned = false;
};

}  // namespace millrace
