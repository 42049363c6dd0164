#include "plan/window_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "plan/plan.h"
#include "plan/testing/chi_square.h"
#include "plan/testing/policies.h"

namespace millrace {
namespace {

/// Divides samples among the lanes, by docs/plan.md. `line` is divided between even and odd lanes, and so on by the
/// further bits, as the places of these lanes demand. Appends to each lane its share.
void ShareOut(const std::vector<uint64_t>& line, const std::vector<uint64_t>& lanes,
              std::vector<std::vector<uint64_t>>* dealt, const std::vector<uint64_t>& lacking) {
  if (lanes.size() == 1) {
    std::vector<uint64_t>& lane = (*dealt)[lanes.front()];
    lane.insert(lane.end(), line.begin(), line.end());
    return;
  }
  std::vector<uint64_t> halves[2];
  uint64_t lack[2] = {0, 0};
  for (size_t i = 0; i < lanes.size(); ++i) {
    halves[i % 2].push_back(lanes[i]);
    lack[i % 2] += lacking[lanes[i]];
  }
  const auto cut = line.begin() + static_cast<std::ptrdiff_t>(lack[0]);
  ShareOut({line.begin(), cut}, halves[0], dealt, lacking);
  ShareOut({cut, line.end()}, halves[1], dealt, lacking);
}

/// Returns the window of these full extents (by slot) and further samples, as docs/plan.md describes it.
std::vector<uint64_t> ToldWindow(const WindowOrder& order, const WindowOrder::Window& window,
                                 const std::vector<uint64_t>& full, const std::vector<uint64_t>& short_extent,
                                 const OrderPolicy& policy) {
  const uint64_t b = policy.extent;
  const uint64_t lanes = std::min(policy.lanes, std::bit_floor(std::max<uint64_t>(full.size(), 1)));
  const uint64_t rows = full.size() / lanes;
  std::vector<std::vector<uint64_t>> dealt(lanes);
  std::vector<uint64_t> line;
  for (uint64_t k = 0; k < full.size(); ++k) {
    std::vector<uint64_t>& into = k < rows * lanes ? dealt[k % lanes] : line;
    for (uint64_t sample = full[k] * b; sample < (full[k] + 1) * b; ++sample) into.push_back(sample);
  }
  line.insert(line.end(), short_extent.begin(), short_extent.end());
  const uint64_t size = full.size() * b + short_extent.size();
  std::vector<uint64_t> places(lanes, 0);
  for (uint64_t q = 0; q < size; ++q) ++places[q % lanes];
  std::vector<uint64_t> all_lanes;
  for (uint64_t lane = 0; lane < lanes; ++lane) {
    all_lanes.push_back(lane);
    places[lane] -= dealt[lane].size();
  }
  ShareOut(line, all_lanes, &dealt, places);
  std::vector<uint64_t> result;
  for (uint64_t q = 0; q < size; ++q) {
    const std::vector<uint64_t>& lane = dealt[q % lanes];
    const Permutation permutation = order.Lane(window, q % lanes);
    EXPECT_EQ(permutation.size(), lane.size());
    result.push_back(lane[permutation.At(q / lanes)]);
  }
  return result;
}

/// Computes the order as docs/plan.md describes it, with lists instead of arithmetic.
std::vector<uint64_t> ToldOrder(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch) {
  const WindowOrder order(samples, policy, seed, epoch);
  const uint64_t b = policy.extent;
  const uint64_t windows = ((samples + b - 1) / b + policy.window - 1) / policy.window;
  std::vector<uint64_t> short_extent;
  for (uint64_t sample = samples / b * b; sample < samples; ++sample) short_extent.push_back(sample);

  std::vector<uint64_t> rows(windows, 0);  // of each window, by slots
  for (uint64_t row = 0; row < samples / b / policy.lanes; ++row) ++rows[row % windows];
  std::vector<std::vector<uint64_t>> full(windows);
  uint64_t slot = 0;
  for (uint64_t window = 0; window < windows; ++window) {
    uint64_t count = rows[window] * policy.lanes;
    if (window + 1 == windows) count = samples / b - slot;
    for (; count > 0; --count, ++slot) full[window].push_back(order.ExtentIn(slot));
  }
  std::vector<uint64_t> result;
  for (uint64_t number = 0; number < windows; ++number) {
    const uint64_t window = (order.start() + number) % windows;
    const bool last = window + 1 == windows;
    const WindowOrder::Window at = order.WindowAt(result.size());
    EXPECT_EQ(at.number, number);
    EXPECT_EQ(at.first, result.size());
    const std::vector<uint64_t> told =
        ToldWindow(order, at, full[window], last ? short_extent : std::vector<uint64_t>(), policy);
    result.insert(result.end(), told.begin(), told.end());
    EXPECT_EQ(at.end(), result.size());
  }
  return result;
}

TEST(WindowOrder, IsTheOneThatIsTold) {
  for (const OrderPolicy& policy : Policies()) {
    if (policy.shuffle != Shuffle::kWindow) continue;
    for (uint64_t samples = 1; samples <= 400; ++samples) {
      const Plan plan(samples, policy, 3, samples);
      const std::vector<uint64_t> told = ToldOrder(samples, policy, 3, samples);
      ASSERT_EQ(told.size(), samples);
      for (uint64_t position = 0; position < samples; ++position) {
        ASSERT_EQ(plan.At(position), told[position]) << Describe(samples, policy) << " position " << position;
      }
    }
  }
}

/// No two lanes are shuffled alike, be they of one window, of two, or of other epochs.
TEST(WindowOrder, EveryLaneHasAKeyOfItsOwn) {
  const OrderPolicy policy = Windowed(20, 8, 8);
  std::set<std::vector<uint8_t>> orders;
  size_t lanes = 0;
  for (const uint64_t seed : {0u, 1u}) {
    for (const uint64_t epoch : {0u, 1u}) {
      constexpr uint64_t kSamples = 20 * (8 * 30 + 7) + 19;  // a window has seven full extents and a short one
      const WindowOrder order(kSamples, policy, seed, epoch);
      for (uint64_t position = 0; position < kSamples;) {
        const WindowOrder::Window window = order.WindowAt(position);
        for (uint64_t lane = 0; lane < window.lanes(); ++lane, ++lanes) {
          std::vector<uint8_t> table(order.SamplesOf(window, lane));
          order.Lane(window, lane).FillTable(table);
          orders.insert(table);
        }
        position = window.end();
      }
    }
  }
  EXPECT_EQ(lanes, 4u * (8 * 30 + 4));
  EXPECT_EQ(orders.size(), lanes);
}

/// These are the rules of docs/plan.md for windows:
///   - there are no more of them than if each had policy.window extents, and none is larger than that;
///   - all but one consist of whole rows, and their rows differ by one at most;
///   - the one with the rest comes anywhere in the epoch.
TEST(WindowOrder, WindowsAreAsEqualAsWholeRowsAllow) {
  for (const OrderPolicy& policy : Policies()) {
    if (policy.shuffle != Shuffle::kWindow) continue;
    const uint64_t row = policy.extent * policy.lanes;
    for (uint64_t samples = 1; samples <= 6 * policy.window * policy.extent; samples += 1 + samples / 7) {
      const WindowOrder order(samples, policy, 1, samples);
      const uint64_t extents = (samples + policy.extent - 1) / policy.extent;
      uint64_t windows = 0;
      uint64_t with_rest = 0;
      uint64_t fewest = UINT64_MAX;
      uint64_t most = 0;
      for (uint64_t position = 0; position < samples; ++windows) {
        const WindowOrder::Window window = order.WindowAt(position);
        ASSERT_EQ(window.first, position);
        ASSERT_EQ(window.number, windows);
        ASSERT_LE(window.size, policy.extent * policy.window) << Describe(samples, policy);
        with_rest += window.size % row != 0 ? 1 : 0;
        fewest = std::min(fewest, window.size / row);
        most = std::max(most, window.size / row);
        position = window.end();
      }
      EXPECT_EQ(windows, (extents + policy.window - 1) / policy.window) << Describe(samples, policy);
      EXPECT_LE(with_rest, 1u);
      EXPECT_LE(most - fewest, 1u) << Describe(samples, policy);
    }
  }
}

TEST(WindowOrder, TheWindowWithTheRestComesAnywhere) {
  constexpr uint64_t kWindows = 5;
  const uint64_t samples = 13 * (4 * 3 * (kWindows - 1) + 5) + 2;
  std::vector<uint64_t> comes(kWindows, 0);
  for (uint64_t epoch = 0; epoch < 2000; ++epoch) {
    const WindowOrder order(samples, Windowed(13, 12, 4), 1, epoch);
    const uint64_t number = order.WindowAt(Plan(samples, Windowed(13, 12, 4), 1, epoch).PositionOf(samples - 1)).number;
    ++comes[number];
  }
  EXPECT_LT(std::abs(ChiSquareZ(comes)), 5);
}

/// Returns the extents that more than one rank reads.
std::set<uint64_t> SharedExtents(const Plan& plan, const OrderPolicy& policy, uint64_t world) {
  std::vector<uint64_t> reader((plan.size() + policy.extent - 1) / policy.extent, UINT64_MAX);
  std::set<uint64_t> shared;
  for (uint64_t position = 0; position < plan.size(); ++position) {
    const uint64_t extent = plan.At(position) / policy.extent;
    if (reader[extent] == UINT64_MAX) reader[extent] = position % world;
    if (reader[extent] != position % world) shared.insert(extent);
  }
  return shared;
}

/// Ranks of a power of two up to the lanes share only extents at cuts. These are among the extents that make no whole
/// row, and are as many as there are ranks but one.
TEST(WindowOrder, RanksOfAPowerOfTwoShareOnlyWhatIsCut) {
  for (const OrderPolicy& policy : {Windowed(13, 192, 64), Windowed(16, 64, 64), Windowed(3, 8, 4), Windowed(7, 5, 1),
                                    Windowed(100, 32, 16), Windowed(1, 64, 64)}) {
    const uint64_t row = policy.extent * policy.lanes;
    for (const uint64_t samples : {row * 30, row * 30 + 1, row * 31 - 1, row * 31 - policy.extent, row * 7 + row / 3,
                                   row * 3 + 2 * policy.extent + 1}) {
      const Plan plan(samples, policy, samples, 5);
      const uint64_t rest = samples % row;
      const uint64_t rest_extents = (rest + policy.extent - 1) / policy.extent;
      for (uint64_t world = 1; world <= policy.lanes; world *= 2) {
        // The window of the rest has fewer lanes where it has no whole row of its own.
        const bool has_row = policy.window > policy.lanes || rest == 0;
        const std::set<uint64_t> shared = SharedExtents(plan, policy, world);
        const uint64_t limit = has_row ? std::min(world - 1, rest_extents) : world == 1 ? 0 : rest_extents;
        EXPECT_LE(shared.size(), limit) << Describe(samples, policy) << " world " << world;
        std::set<uint64_t> windows;
        for (const uint64_t extent : shared) windows.insert(plan.WindowOf(plan.PositionOf(extent * policy.extent)));
        EXPECT_LE(windows.size(), 1u) << Describe(samples, policy) << " world " << world;
      }
    }
  }
}

/// This is the table of docs/plan.md.
TEST(WindowOrder, SharedExtentsAreThoseOfTheDocumentation) {
  const OrderPolicy policy = Windowed(13, 192, 64);
  std::string found;
  for (const uint64_t samples : {20'000u, 100'000u}) {
    const Plan plan(samples, policy, 42, 0);
    for (const uint64_t world : {2u, 8u, 64u}) found += fmt::format("{} ", SharedExtents(plan, policy, world).size());
  }
  EXPECT_EQ(found, "1 3 3 1 7 13 ");
}

}  // namespace
}  // namespace millrace
