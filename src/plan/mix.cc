#include "plan/mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fmt/format.h"
#include "plan/interleave.h"
#include "plan/mix_order.h"

namespace millrace {

absl::StatusOr<Draws> ParseDraws(std::string_view text) {
  for (const Draws draws : {Draws::kExact, Draws::kReplacement, Draws::kIndependent}) {
    if (text == DrawsName(draws)) return draws;
  }
  return absl::InvalidArgumentError(
      fmt::format("unknown kind of draws \"{}\": use exact, replacement or independent", text));
}

std::string_view DrawsName(Draws draws) {
  switch (draws) {
    case Draws::kExact:
      return "exact";
    case Draws::kReplacement:
      return "replacement";
    case Draws::kIndependent:
      return "independent";
  }
  return "";
}

absl::Status Mix::Check() const {
  const auto refuse = [](const std::string& reason) { return absl::InvalidArgumentError("mix: " + reason); };
  if (parts.empty() || parts.size() > kMaxParts) {
    return refuse(fmt::format("it has 1 to {} parts, not {}", kMaxParts, parts.size()));
  }
  if (length < 1 || length > Interleave::kMaxSize) {
    return refuse(fmt::format("an epoch has 1 to {} samples, not {}", Interleave::kMaxSize, length));
  }
  uint64_t sum = 0;
  for (const Part& part : parts) {
    RETURN_IF_ERROR(part.policy.Check());
    if (part.items > Plan::kMaxSamples - sum) return refuse("its parts have more samples than a plan takes");
    sum += part.items;
  }
  if (stages.empty() || stages.front().from != 0 || stages.size() > kMaxStages) {
    return refuse(fmt::format("it has 1 to {} stages of weights, the first one from sample 0", kMaxStages));
  }
  if (stages.size() * parts.size() > kMaxWeights) {
    return refuse(
        fmt::format("{} stages of {} weights; all together may have {}", stages.size(), parts.size(), kMaxWeights));
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::vector<uint64_t>& weights = stages[i].weights;
    if (i > 0 && stages[i].from <= stages[i - 1].from) return refuse("its stages are not in ascending order");
    if (weights.size() != parts.size()) {
      return refuse(fmt::format("{} weights for {} parts", weights.size(), parts.size()));
    }
    if (std::all_of(weights.begin(), weights.end(), [](uint64_t weight) { return weight == 0; })) {
      return refuse("all weights are 0");
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      if (weights[part] > kMaxWeight) return refuse(fmt::format("a weight above {}", kMaxWeight));
      if (weights[part] > 0 && parts[part].items == 0) {
        return refuse(fmt::format("part {} has a weight but no samples; leave it out, or give it weight 0", part));
      }
    }
  }
  return absl::OkStatus();
}

uint64_t Mix::items() const {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += part.items;
  return sum;
}

const Mix::Stage& Mix::StageAt(unsigned __int128 count) const {
  const auto after = std::upper_bound(stages.begin(), stages.end(), count,
                                      [](unsigned __int128 value, const Stage& stage) { return value < stage.from; });
  return *(after - 1);
}

std::vector<uint64_t> Mix::CountsOf(uint64_t seed, uint64_t epoch) const {
  std::vector<uint64_t> counts(parts.size(), 0);
  for (const MixPhase& phase : PhasesOf(*this, epoch)) {
    const std::vector<uint64_t> part = phase.CountsOf(seed);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += part[i];
  }
  return counts;
}

std::vector<double> Mix::SharesOf(uint64_t epoch) const {
  std::vector<double> shares(parts.size(), 0);
  for (const MixPhase& phase : PhasesOf(*this, epoch)) {
    const double sum = std::accumulate(phase.weights.begin(), phase.weights.end(), 0.0);
    const double stretch = static_cast<double>(phase.length) / static_cast<double>(length);
    for (size_t i = 0; i < shares.size(); ++i) shares[i] += stretch * static_cast<double>(phase.weights[i]) / sum;
  }
  return shares;
}

absl::StatusOr<std::vector<uint64_t>> MixWeights(std::span<const double> weights) {
  double largest = 0;
  for (const double weight : weights) {
    if (!(weight >= 0) || std::isinf(weight)) {
      return absl::InvalidArgumentError(fmt::format("a weight is a number from 0 on, not {}", weight));
    }
    largest = std::max(largest, weight);
  }
  if (largest == 0) return absl::InvalidArgumentError("all weights are 0");
  // Scaling by a power of two is exact, so that whole numbers keep their proportions.
  int exponent = 0;
  std::frexp(largest, &exponent);
  std::vector<uint64_t> scaled;
  for (const double weight : weights) {
    const auto value = static_cast<uint64_t>(std::llround(std::ldexp(weight, 40 - exponent)));
    scaled.push_back(weight > 0 ? std::max<uint64_t>(value, 1) : 0);
  }
  return scaled;
}

}  // namespace millrace
