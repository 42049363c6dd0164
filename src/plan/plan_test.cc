#include "plan/plan.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/testing/test_all.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/selection.h"
#include "plan/testing/chi_square.h"
#include "plan/testing/policies.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

void ExpectPlanIsBijection(uint64_t samples, const OrderPolicy& policy) {
  const Plan plan(samples, policy, samples + 17, 2);
  ASSERT_EQ(plan.size(), samples);
  std::vector<uint8_t> seen(samples, 0);
  Plan::Cursor cursor(plan, 0);
  for (uint64_t position = 0; position < samples; ++position) {
    const uint64_t sample = plan.At(position);
    ASSERT_LT(sample, samples) << Describe(samples, policy);
    ASSERT_EQ(seen[sample]++, 0) << Describe(samples, policy) << " position " << position;
    ASSERT_EQ(plan.PositionOf(sample), position) << Describe(samples, policy);
    ASSERT_EQ(cursor.position(), position);
    ASSERT_FALSE(cursor.done());
    ASSERT_EQ(cursor.Next(), sample) << Describe(samples, policy) << " position " << position;
  }
  ASSERT_TRUE(cursor.done());
  ASSERT_EQ(cursor.position(), samples);
}

TEST(Plan, IsABijectionForEverySizeTo400) {
  for (const OrderPolicy& policy : Policies()) {
    for (uint64_t samples = 1; samples <= 400; ++samples) ExpectPlanIsBijection(samples, policy);
  }
}

TEST(Plan, IsABijectionForEverySizeTo2000) {
  for (const OrderPolicy& policy :
       {OrderPolicy{.shuffle = Shuffle::kNone}, OrderPolicy{.shuffle = Shuffle::kGlobal}, Windowed(3, 8, 4),
        Windowed(16, 192, 64), Windowed(16, 64, 64), Windowed(1, 64, 64), Windowed(37, 16, 8)}) {
    for (uint64_t samples = 401; samples <= 2000; samples += kSanitized ? 7 : 1) ExpectPlanIsBijection(samples, policy);
  }
}

TEST(Plan, IsABijectionAroundPowersOfTwo) {
  for (const OrderPolicy& policy : Policies()) {
    for (uint64_t power = 512; power <= 16384; power *= 2) {
      for (const uint64_t samples : {power - 1, power, power + 1}) ExpectPlanIsBijection(samples, policy);
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
        ASSERT_EQ(plan.PositionOf(sample), position) << Describe(samples, policy);
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
        ASSERT_EQ(plan.PositionOf(plan.At(position)), position) << Describe(samples, policy);
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

/// The reader is tested with and without room for the members of a window, by extents that are read often and seldom.
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

/// Over many epochs each sample comes at every place, so that no part of the data is always early or late.
TEST(Plan, WindowedOrderSpreadsEachSampleOverTheEpoch) {
  constexpr uint64_t kSamples = 960;
  constexpr uint64_t kEpochs = 3000;
  constexpr uint64_t kBins = 48;
  const OrderPolicy policy = Windowed(4, 32, 8);
  for (const uint64_t sample : {0u, 1u, 500u, 959u}) {
    std::vector<uint64_t> bins(kBins, 0);
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      ++bins[Plan(kSamples, policy, 8, epoch).PositionOf(sample) * kBins / kSamples];
    }
    EXPECT_LT(std::abs(ChiSquareZ(bins)), 5) << sample;
  }
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
