#include "plan/order_policy.h"

#include <bit>
#include <cmath>

#include "fmt/format.h"

namespace millrace {
namespace {

constexpr double kExtentBytes = 1.5 * 1024 * 1024;
constexpr double kWindowBytes = 256.0 * 1024 * 1024;
constexpr uint64_t kLanes = 64;

/// Returns max(1, round(wanted)), at most `limit`; also for NaN.
uint64_t AtLeastOne(double wanted, uint64_t limit) {
  if (!(wanted >= 1)) return 1;
  return wanted >= static_cast<double>(limit) ? limit : static_cast<uint64_t>(std::llround(wanted));
}

}  // namespace

absl::StatusOr<Shuffle> ParseShuffle(std::string_view text) {
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
    if (text == ShuffleName(shuffle)) return shuffle;
  }
  return absl::InvalidArgumentError(fmt::format("unknown shuffle \"{}\": use none, global or window", text));
}

std::string_view ShuffleName(Shuffle shuffle) {
  switch (shuffle) {
    case Shuffle::kNone:
      return "none";
    case Shuffle::kGlobal:
      return "global";
    case Shuffle::kWindow:
      return "window";
  }
  return "";
}

absl::Status OrderPolicy::Check() const {
  if (extent < 1 || extent > kMaxExtent) {
    return absl::InvalidArgumentError(fmt::format("order: an extent has 1 to {} samples, not {}", kMaxExtent, extent));
  }
  if (!std::has_single_bit(lanes) || lanes > kMaxLanes) {
    return absl::InvalidArgumentError(
        fmt::format("order: the number of lanes is a power of two up to {}, not {}", kMaxLanes, lanes));
  }
  if (window < lanes || window > kMaxWindow || window % lanes != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "order: a window is a multiple of the {} lanes, up to {} extents, not {}", lanes, kMaxWindow, window));
  }
  return absl::OkStatus();
}

OrderPolicy OrderPolicy::ForSamples(Shuffle shuffle, double mean_sample_bytes, bool raw_objects) {
  const double mean = mean_sample_bytes >= 1 ? mean_sample_bytes : 1;
  OrderPolicy policy;
  policy.shuffle = shuffle;
  policy.lanes = kLanes;
  policy.extent = raw_objects ? 1 : AtLeastOne(kExtentBytes / mean, kMaxExtent);
  const double lane_row_bytes = static_cast<double>(kLanes * policy.extent) * mean;
  policy.window = kLanes * AtLeastOne(kWindowBytes / lane_row_bytes, kMaxWindow / kLanes);
  return policy;
}

}  // namespace millrace
