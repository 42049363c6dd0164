#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace millrace {

enum class Shuffle { kNone, kGlobal, kWindow };

absl::StatusOr<Shuffle> ParseShuffle(std::string_view text);  // "none", "global", "window"
std::string_view ShuffleName(Shuffle shuffle);

/// Holds everything that decides the order of samples, except seed and epoch. Memory, threads and world size take no
/// part.
struct OrderPolicy {
  static constexpr uint64_t kMaxExtent = uint64_t{1} << 24;
  static constexpr uint64_t kMaxWindow = uint64_t{1} << 20;
  static constexpr uint64_t kMaxLanes = uint64_t{1} << 12;

  Shuffle shuffle = Shuffle::kWindow;
  uint64_t extent = 16;   // b: consecutive samples fetched together
  uint64_t window = 192;  // K: extents shuffled together; a multiple of `lanes`
  uint64_t lanes = 64;    // L: parts of a window that are not split between ranks; a power of two

  /// Returns InvalidArgument with the reason when the numbers break the rules above or the limits, which keep a
  /// Cursor's tables small.
  absl::Status Check() const;

  /// Returns the defaults for samples of this mean size: b ~ 1.5 MiB (1 for raw objects), L = 64, K ~ 256 MiB.
  static OrderPolicy ForSamples(Shuffle shuffle, double mean_sample_bytes, bool raw_objects);
};

}  // namespace millrace
