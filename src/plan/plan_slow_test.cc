#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "base/testing/test_all.h"
#include "gtest/gtest.h"
#include "plan/permutation.h"
#include "plan/plan.h"
#include "plan/testing/chi_square.h"

namespace millrace {
namespace {

struct Order {
  const char* name;
  OrderPolicy policy;
};

/// Every test of the order runs for each of these, and each as a case of its own, so that ctest may run them abreast.
class PlanSlow : public ::testing::TestWithParam<Order> {
 protected:
  /// PositionOf(At(p)) == p for all p, with all At(p) in range, makes At a bijection and PositionOf its inverse.
  static void ExpectBijection(uint64_t samples, uint64_t seed) {
    const Plan plan(samples, GetParam().policy, seed, 0);
    Plan::Cursor cursor(plan, 0);
    for (uint64_t position = 0; position < samples; ++position) {
      const uint64_t sample = cursor.Next();
      ASSERT_LT(sample, samples) << samples << " samples, position " << position;
      ASSERT_EQ(plan.PositionOf(sample), position) << samples << " samples";
    }
    ASSERT_TRUE(cursor.done());
  }
};

INSTANTIATE_TEST_SUITE_P(
    Orders, PlanSlow,
    ::testing::Values(Order{"None", {.shuffle = Shuffle::kNone}}, Order{"Global", {.shuffle = Shuffle::kGlobal}},
                      Order{"SmallLanes", {.shuffle = Shuffle::kWindow, .extent = 13, .window = 192, .lanes = 64}},
                      Order{"OneRow", {.shuffle = Shuffle::kWindow, .extent = 7, .window = 32, .lanes = 32}},
                      Order{"LargeLanes", {.shuffle = Shuffle::kWindow, .extent = 100, .window = 16, .lanes = 4}}),
    [](const auto& test) { return test.param.name; });

TEST_P(PlanSlow, IsABijectionForEverySizeTo10To4) {
  for (uint64_t samples = 1; samples <= 10'000; ++samples) ExpectBijection(samples, samples);
}

TEST_P(PlanSlow, IsABijectionAroundPowersOfTwo) {
  for (uint64_t power = 16'384; power <= uint64_t{1} << 21; power *= 2) {
    for (const uint64_t samples : {power - 1, power, power + 1}) ExpectBijection(samples, power);
  }
}

TEST_P(PlanSlow, IsABijectionForRandomSizesTo10To6) {
  Rng rng(1);
  const int sizes = TestAll() ? 1000 : 150;
  for (int i = 0; i < sizes; ++i) ExpectBijection(1 + rng.Below(1'000'000), rng.Next());
}

TEST_P(PlanSlow, RoundTripsAtRandomSizesTo10To12) {
  Rng rng(2);
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t samples = 1 + rng.Below(uint64_t{1} << (1 + rng.Below(40)));
    const Plan plan(samples, GetParam().policy, rng.Next(), 0);
    for (int point = 0; point < 1000; ++point) {
      const uint64_t position = rng.Below(samples);
      const uint64_t sample = plan.At(position);
      ASSERT_LT(sample, samples);
      ASSERT_EQ(plan.PositionOf(sample), position) << samples << " samples";
    }
  }
}

/// The Feistel network is weakest where its halves are smallest. Fifty million distances of adjacent elements: with six
/// rounds they are 15 to 20 standard deviations from even.
TEST(PermutationSlow, SmallestNetworkShowsNoStructure) {
  for (const uint64_t n : {Permutation::kSmall + 1, uint64_t{17} * 17}) {
    std::vector<uint64_t> distances(n - 1);
    std::vector<uint64_t> values(n);
    for (uint64_t key = 0; key < 50'000'000 / n; ++key) {
      std::iota(values.begin(), values.end(), uint64_t{0});
      Permutation(n, key).Map(values);
      for (uint64_t i = 0; i < n; ++i) ++distances[(values[(i + 1) % n] + n - values[i]) % n - 1];
    }
    EXPECT_LT(std::abs(ChiSquareZ(distances)), 5) << n;
  }
}

}  // namespace
}  // namespace millrace
