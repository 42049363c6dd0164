#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/selection.h"
#include "plan/testing/chi_square.h"
#include "plan/window_order.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

OrderPolicy Windowed(uint64_t extent, uint64_t window, uint64_t lanes) {
  return {.shuffle = Shuffle::kWindow, .extent = extent, .window = window, .lanes = lanes};
}

std::string Describe(uint64_t samples, const OrderPolicy& policy) {
  return fmt::format("n={} {} b={} K={} L={}", samples, ShuffleName(policy.shuffle), policy.extent, policy.window,
                     policy.lanes);
}

/// Policies whose windows are of every kind for sizes up to a few thousand.
std::vector<OrderPolicy> Policies() {
  return {{.shuffle = Shuffle::kNone},
          {.shuffle = Shuffle::kGlobal},
          Windowed(1, 1, 1),
          Windowed(1, 64, 64),
          Windowed(3, 8, 4),
          Windowed(13, 12, 4),
          Windowed(16, 192, 64),
          Windowed(300, 4, 2),
          Windowed(7, 5, 1)};
}

/// The samples that the lanes share out, by docs/plan.md: `line` is divided between even and odd lanes, and so on by
/// the further bits, as the places of these lanes demand. Appends to each lane its share.
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

/// The window of these full extents (by slot) and further samples, as docs/plan.md tells it.
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

/// The order as docs/plan.md tells it, with lists instead of arithmetic.
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

TEST(Plan, WindowedOrderIsTheOneThatIsTold) {
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

void ExpectBijection(uint64_t samples, const OrderPolicy& policy) {
  const Plan plan(samples, policy, samples + 17, 2);
  ASSERT_EQ(plan.size(), samples);
  std::vector<uint8_t> seen(samples, 0);
  Plan::Cursor cursor(plan, 0);
  for (uint64_t position = 0; position < samples; ++position) {
    const uint64_t sample = plan.At(position);
    ASSERT_LT(sample, samples) << Describe(samples, policy);
    ASSERT_EQ(seen[sample]++, 0) << Describe(samples, policy) << " position " << position;
    ASSERT_EQ(plan.Where(sample), position) << Describe(samples, policy);
    ASSERT_EQ(cursor.position(), position);
    ASSERT_FALSE(cursor.done());
    ASSERT_EQ(cursor.Next(), sample) << Describe(samples, policy) << " position " << position;
  }
  ASSERT_TRUE(cursor.done());
  ASSERT_EQ(cursor.position(), samples);
}

TEST(Plan, IsABijectionForEverySizeTo400) {
  for (const OrderPolicy& policy : Policies()) {
    for (uint64_t samples = 1; samples <= 400; ++samples) ExpectBijection(samples, policy);
  }
}

TEST(Plan, IsABijectionForEverySizeTo2000) {
  for (const OrderPolicy& policy :
       {OrderPolicy{.shuffle = Shuffle::kNone}, OrderPolicy{.shuffle = Shuffle::kGlobal}, Windowed(3, 8, 4),
        Windowed(16, 192, 64), Windowed(16, 64, 64), Windowed(1, 64, 64), Windowed(37, 16, 8)}) {
    for (uint64_t samples = 401; samples <= 2000; ++samples) ExpectBijection(samples, policy);
  }
}

TEST(Plan, IsABijectionAroundPowersOfTwo) {
  for (const OrderPolicy& policy : Policies()) {
    for (uint64_t power = 512; power <= 16384; power *= 2) {
      for (const uint64_t samples : {power - 1, power, power + 1}) ExpectBijection(samples, policy);
    }
  }
}

TEST(Plan, RoundTripsAtSizesUpTo10To12) {
  Rng rng(4);
  for (OrderPolicy policy : Policies()) {
    for (int i = 0; i < 100; ++i) {
      const uint64_t samples = 1 + rng.Below(uint64_t{1} << (1 + rng.Below(40)));
      const Plan plan(samples, policy, rng.Next(), i);
      for (int point = 0; point < 50; ++point) {
        const uint64_t position = rng.Below(samples);
        const uint64_t sample = plan.At(position);
        ASSERT_LT(sample, samples);
        ASSERT_EQ(plan.Where(sample), position) << Describe(samples, policy);
        ASSERT_LE(plan.WindowOf(position), position);
        ASSERT_GT(plan.WindowEnd(position), position);
      }
    }
  }
}

TEST(Plan, HoldsAtTheLimits) {
  const OrderPolicy largest = Windowed(OrderPolicy::kMaxExtent, OrderPolicy::kMaxWindow, OrderPolicy::kMaxLanes);
  ASSERT_TRUE(largest.Check().ok());
  Rng rng(5);
  for (const OrderPolicy& policy : {largest, Windowed(1, 64, 64), OrderPolicy{.shuffle = Shuffle::kGlobal}}) {
    for (const uint64_t samples : {Plan::kMaxSamples, Plan::kMaxSamples - 1}) {
      const Plan plan(samples, policy, 1, 1);
      for (int i = 0; i < 200; ++i) {
        const uint64_t position = i == 0 ? samples - 1 : rng.Below(samples);
        ASSERT_EQ(plan.Where(plan.At(position)), position) << Describe(samples, policy);
      }
      Plan::Cursor cursor(plan, samples - 3, UINT64_MAX);  // the next position would overflow
      EXPECT_EQ(cursor.Next(), plan.At(samples - 3));
      EXPECT_TRUE(cursor.done());
    }
  }
}

TEST(Plan, AnEmptyEpochIsDoneAtOnce) {
  for (const OrderPolicy& policy : Policies()) {
    const Plan plan(0, policy, 1, 1);
    EXPECT_EQ(plan.size(), 0u);
    EXPECT_TRUE(Plan::Cursor(plan, 0).done());
  }
}

TEST(Plan, CursorAgreesWithAtFromAnyPlaceWithAnyStride) {
  for (const OrderPolicy& policy : Policies()) {
    for (const uint64_t samples : {1u, 63u, 64u, 65u, 1000u, 5003u}) {
      const Plan plan(samples, policy, 11, 0);
      for (const uint64_t stride : {1u, 2u, 3u, 8u, 13u, 64u, 100u, 997u}) {
        for (const uint64_t first : {uint64_t{0}, uint64_t{7}, samples / 2, samples - 1, samples, samples + 5}) {
          Plan::Cursor cursor(plan, first, stride);
          uint64_t position = first;
          while (!cursor.done()) {
            ASSERT_EQ(cursor.position(), position);
            ASSERT_EQ(cursor.Next(), plan.At(position)) << Describe(samples, policy) << " stride " << stride;
            position += stride;
          }
          ASSERT_GE(position, samples);
        }
      }
    }
  }
}

/// With and without room for the members of a window, by extents that are read often and seldom.
TEST(Plan, ReaderOfASubsetReadsItsMembers) {
  std::vector<OrderPolicy> policies = Policies();
  policies.push_back(Windowed(5000, 128, 64));  // more than WindowReader::kMembers
  for (const OrderPolicy& policy : policies) {
    for (const uint64_t percent : {3u, 50u, 100u}) {
      Selection::Builder builder(700'000);
      Rng rng(percent);
      for (uint64_t number = 0; number < 700'000; ++number) {
        if (rng.Below(100) < percent) builder.Add(number);
      }
      const Selection subset = std::move(builder).Finish();
      const Plan plan(subset.size(), policy, 1, 2);
      for (const uint64_t stride : {1u, 5u, 64u}) {
        std::vector<uint64_t> read;
        for (uint64_t position = subset.size() / 3; position < subset.size() && read.size() < 10'000;
             position += stride) {
          read.push_back(position);
        }
        const std::vector<uint64_t> positions = read;
        Plan::Reader(plan, stride, &subset).Map(read);
        for (size_t i = 0; i < read.size(); ++i) {
          ASSERT_EQ(read[i], subset.At(plan.At(positions[i])))
              << Describe(subset.size(), policy) << " stride " << stride;
        }
      }
    }
  }
}

TEST(Plan, CursorOutlivesAMoveOfThePlan) {
  Plan plan(1000, Windowed(3, 8, 4), 1, 0);
  const uint64_t expected = plan.At(1);
  Plan::Cursor cursor(plan, 0);
  const Plan moved = std::move(plan);
  Plan::Cursor moved_cursor = std::move(cursor);
  moved_cursor.Next();
  EXPECT_EQ(moved_cursor.Next(), expected);
}

TEST(Plan, WindowsHoldTheirExtentsAndNothingElse) {
  for (const OrderPolicy& policy : Policies()) {
    if (policy.shuffle != Shuffle::kWindow) continue;
    for (const uint64_t samples : {1u, 250u, 1000u, 4001u}) {
      const Plan plan(samples, policy, 5, 1);
      std::set<uint64_t> done;
      uint64_t windows = 0;
      for (uint64_t first = 0; first < samples; ++windows) {
        const uint64_t end = plan.WindowEnd(first);
        ASSERT_GT(end, first);
        std::set<uint64_t> extents;
        for (uint64_t position = first; position < end; ++position) {
          ASSERT_EQ(plan.WindowOf(position), windows) << Describe(samples, policy);
          ASSERT_EQ(plan.WindowEnd(position), end);
          extents.insert(plan.At(position) / policy.extent);
        }
        ASSERT_LE(extents.size(), policy.window);
        for (const uint64_t extent : extents) ASSERT_TRUE(done.insert(extent).second) << Describe(samples, policy);
        first = end;
      }
      const uint64_t extents = (samples + policy.extent - 1) / policy.extent;
      EXPECT_EQ(windows, (extents + policy.window - 1) / policy.window);
    }
  }
}

TEST(Plan, OrdersWithoutWindowsAreOneWindow) {
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal}) {
    const Plan plan(100, {.shuffle = shuffle}, 1, 1);
    EXPECT_EQ(plan.WindowOf(99), 0u);
    EXPECT_EQ(plan.WindowEnd(0), 100u);
  }
}

TEST(Plan, SequentialIsTheIndexOrder) {
  const Plan plan(100, {.shuffle = Shuffle::kNone}, 1, 1);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(plan.At(i), i);
}

/// Seeds and epochs that differ by little give unrelated orders: about one sample stays in place.
TEST(Plan, SeedAndEpochChangeTheWholeOrder) {
  constexpr uint64_t kSamples = 3000;
  for (const OrderPolicy& policy : {OrderPolicy{.shuffle = Shuffle::kGlobal}, Windowed(4, 32, 8)}) {
    const auto same = [&](const Plan& a, const Plan& b) {
      uint64_t count = 0;
      for (uint64_t i = 0; i < kSamples; ++i) count += a.At(i) == b.At(i) ? 1 : 0;
      return count;
    };
    uint64_t total = 0;
    const Plan base(kSamples, policy, 0, 0);
    EXPECT_EQ(same(base, Plan(kSamples, policy, 0, 0)), kSamples);
    for (int bit = 0; bit < 64; ++bit) {
      total += same(base, Plan(kSamples, policy, uint64_t{1} << bit, 0));
      total += same(base, Plan(kSamples, policy, 0, uint64_t{1} << bit));
    }
    total += same(Plan(kSamples, policy, 1, 2), Plan(kSamples, policy, 2, 1));
    EXPECT_NEAR(static_cast<double>(total), 129, 60) << ShuffleName(policy.shuffle);
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

/// What docs/plan.md says of windows: no more than windows of policy.window extents make, none larger than that, all
/// but one of whole rows, and their rows differ by one at most; the one with the rest comes anywhere in the epoch.
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
    const uint64_t number = order.WindowAt(Plan(samples, Windowed(13, 12, 4), 1, epoch).Where(samples - 1)).number;
    ++comes[number];
  }
  EXPECT_LT(std::abs(ChiSquareZ(comes)), 5);
}

/// Over many epochs each sample comes at every place, so that no part of the data is always early or late.
TEST(Plan, WindowedOrderSpreadsEachSampleOverTheEpoch) {
  constexpr uint64_t kSamples = 960;
  constexpr uint64_t kEpochs = 3000;
  constexpr uint64_t kBins = 48;
  const OrderPolicy policy = Windowed(4, 32, 8);
  for (const uint64_t sample : {0u, 1u, 500u, 959u}) {
    std::vector<uint64_t> bins(kBins, 0);
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      ++bins[Plan(kSamples, policy, 8, epoch).Where(sample) * kBins / kSamples];
    }
    EXPECT_LT(std::abs(ChiSquareZ(bins)), 5) << sample;
  }
}

/// The extents that more than one rank reads.
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

/// Ranks of a power of two up to the lanes share nothing but extents at cuts: of those that make no whole row, as many
/// as there are ranks but one.
TEST(Plan, RanksOfAPowerOfTwoShareOnlyWhatIsCut) {
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
        for (const uint64_t extent : shared) windows.insert(plan.WindowOf(plan.Where(extent * policy.extent)));
        EXPECT_LE(windows.size(), 1u) << Describe(samples, policy) << " world " << world;
      }
    }
  }
}

/// The table of docs/plan.md.
TEST(Plan, SharedExtentsAreThoseOfTheDocumentation) {
  const OrderPolicy policy = Windowed(13, 192, 64);
  std::string found;
  for (const uint64_t samples : {20'000u, 100'000u}) {
    const Plan plan(samples, policy, 42, 0);
    for (const uint64_t world : {2u, 8u, 64u}) found += fmt::format("{} ", SharedExtents(plan, policy, world).size());
  }
  EXPECT_EQ(found, "1 3 3 1 7 13 ");
}

TEST(OrderPolicy, ChecksItsNumbers) {
  EXPECT_TRUE(OrderPolicy().Check().ok());
  const auto message = [](const OrderPolicy& policy) {
    const absl::Status status = policy.Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(Windowed(0, 64, 64)), HasSubstr("extent"));
  EXPECT_THAT(message(Windowed(OrderPolicy::kMaxExtent + 1, 64, 64)), HasSubstr("extent"));
  EXPECT_THAT(message(Windowed(1, 64, 0)), HasSubstr("lanes"));
  EXPECT_THAT(message(Windowed(1, 60, 6)), HasSubstr("power of two"));
  EXPECT_THAT(message(Windowed(1, 8192, 8192)), HasSubstr("lanes"));
  EXPECT_THAT(message(Windowed(1, 0, 1)), HasSubstr("window"));
  EXPECT_THAT(message(Windowed(1, 32, 64)), HasSubstr("window"));
  EXPECT_THAT(message(Windowed(1, 100, 64)), HasSubstr("multiple of the 64 lanes"));
  EXPECT_THAT(message(Windowed(1, OrderPolicy::kMaxWindow + 64, 64)), HasSubstr("window"));
}

TEST(OrderPolicy, DefaultsFollowTheMeanSize) {
  const OrderPolicy jpegs = OrderPolicy::ForSamples(Shuffle::kWindow, 115'000, false);
  EXPECT_EQ(jpegs.shuffle, Shuffle::kWindow);
  EXPECT_EQ(jpegs.extent, 14u);  // 1.5 MiB / 115 kB = 13.7
  EXPECT_EQ(jpegs.lanes, 64u);
  EXPECT_EQ(jpegs.window, 192u);  // 256 MiB / (64 x 14 x 115 kB) = 2.6
  const OrderPolicy raw = OrderPolicy::ForSamples(Shuffle::kWindow, 115'000, true);
  EXPECT_EQ(raw.extent, 1u);
  EXPECT_EQ(raw.window, 64u * 36);
  const OrderPolicy videos = OrderPolicy::ForSamples(Shuffle::kWindow, 1e9, false);
  EXPECT_EQ(videos.extent, 1u);
  EXPECT_EQ(videos.window, 64u);
  for (const double mean : {0.0, -1.0, 0.001, 1.0, 10.0, 1e3, 1e6, 1e30, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    for (const bool is_raw : {false, true}) {
      EXPECT_TRUE(OrderPolicy::ForSamples(Shuffle::kWindow, mean, is_raw).Check().ok()) << mean;
    }
  }
}

TEST(Shuffle, NamesRoundTrip) {
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
    EXPECT_EQ(ParseShuffle(ShuffleName(shuffle)).value(), shuffle);
  }
  for (const std::string_view text : {"", "Window", "windowed", "none ", "random"}) {
    const auto result = ParseShuffle(text);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("none, global or window"));
  }
}

}  // namespace
}  // namespace millrace
