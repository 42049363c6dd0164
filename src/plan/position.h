#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/mix.h"
#include "plan/plan.h"

namespace millrace {

/// This is the version of positions with a stage, and of the order of staged loaders.
inline constexpr uint64_t kStagedPositionVersion = 3;

/// Describes the stage of a position, if its epoch is staged.
struct PositionStage {
  uint64_t number = 0;
  uint64_t before = 0;  // samples of the stages before it, in this epoch
  friend bool operator==(const PositionStage&, const PositionStage&) = default;
};

/// A position is a place in the stream of samples: what the consumers of all ranks together have received. It is
/// written as one short ASCII string.
///
/// A position is written in one of two forms:
///   mr2-<epoch>-<samples consumed in this epoch by all ranks>-<fingerprint, 16 hex digits>
///   mr3-<epoch>-<samples consumed in this stage by all ranks>-<stage>-<samples before it>-<fingerprint>
///
/// The second form is that of a loader whose first epoch is staged. Epochs after the first one have one stage, 0. A
/// position that has consumed its whole epoch is written as the start of the next one.
struct Position {
  using Stage = PositionStage;

  uint64_t epoch = 0;
  uint64_t consumed = 0;
  uint64_t fingerprint = 0;
  std::optional<Stage> stage = std::nullopt;

  std::string ToString() const;
  /// Returns InvalidArgument when the text is not a position or is of a version that this program does not know.
  static absl::StatusOr<Position> Parse(std::string_view text);
};

/// Identifies the order: a hash of the index's fingerprint, the seed, the policy and the version of the construction.
/// Extent, window and lanes take part only where they matter, in the windowed shuffle.
uint64_t OrderFingerprint(uint64_t index_fingerprint, uint64_t samples, const OrderPolicy& policy, uint64_t seed);
/// Returns the fingerprint of a mix: of the fingerprints of its parts, and of all that decides about its order.
uint64_t OrderFingerprint(std::span<const uint64_t> part_fingerprints, const Mix& mix, uint64_t seed);

}  // namespace millrace
