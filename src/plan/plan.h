#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace millrace {

enum class Shuffle { kNone, kGlobal, kWindow };

absl::StatusOr<Shuffle> ParseShuffle(std::string_view text);  // "none", "global", "window"
std::string_view ShuffleName(Shuffle shuffle);

/// Everything that decides the order of samples, but for seed and epoch. Memory, threads and world size take no part.
struct OrderPolicy {
  static constexpr uint64_t kMaxExtent = uint64_t{1} << 24;
  static constexpr uint64_t kMaxWindow = uint64_t{1} << 20;
  static constexpr uint64_t kMaxLanes = uint64_t{1} << 12;

  Shuffle shuffle = Shuffle::kWindow;
  uint64_t extent = 16;   // b: consecutive samples fetched together
  uint64_t window = 192;  // K: extents shuffled together; a multiple of `lanes`
  uint64_t lanes = 64;    // L: parts of a window that are not split between ranks; a power of two

  /// InvalidArgument with the reason when the numbers break the rules above or the limits, which keep a Cursor's tables
  /// small.
  absl::Status Check() const;

  /// The defaults for samples of this mean size: b ~ 1.5 MiB (1 for raw objects), L = 64, K ~ 256 MiB.
  static OrderPolicy ForSamples(Shuffle shuffle, double mean_sample_bytes, bool raw_objects);
};

/// The order of one epoch: a bijection between positions and samples, both 0 .. size-1, as a pure function of (size,
/// policy, seed, epoch). At and Where are O(1) in time and memory, but for one-window tables that a Cursor keeps.
/// Immutable and thread-safe. docs/plan.md describes the construction.
class Plan {
 public:
  static constexpr uint64_t kMaxSamples = uint64_t{1} << 60;

  /// samples <= kMaxSamples; policy.Check() is ok.
  Plan(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch);
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  uint64_t size() const;
  uint64_t At(uint64_t position) const;   // position < size()
  uint64_t Where(uint64_t sample) const;  // sample < size()
  uint64_t WindowOf(uint64_t position) const;
  /// First position of the window after that of `position`; size() in the last one. Order without windows: size().
  uint64_t WindowEnd(uint64_t position) const;

  /// Walks positions `first`, `first + stride`, ... faster than At does. Not thread-safe; must not outlive the Plan.
  /// stride > 0. Memory: up to 8 bytes an extent of a window, 128 a lane, and 1 a sample of lanes of up to 256 samples.
  class Cursor {
   public:
    Cursor(const Plan& plan, uint64_t first, uint64_t stride = 1);
    ~Cursor();
    Cursor(Cursor&&) noexcept;
    Cursor& operator=(Cursor&&) noexcept;
    bool done() const;
    uint64_t position() const;  // size() when done
    uint64_t Next();            // the sample at position(); then advances. Not when done()

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
