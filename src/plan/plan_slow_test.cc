#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "plan/permutation.h"
#include "plan/plan.h"
#include "plan/testing/chi_square.h"

namespace millrace {
namespace {

void ExpectBijection(uint64_t samples, const OrderPolicy& policy, uint64_t seed) {
  const Plan plan(samples, policy, seed, 0);
  std::vector<bool> seen(samples);
  Plan::Cursor cursor(plan, 0);
  for (uint64_t position = 0; position < samples; ++position) {
    const uint64_t sample = cursor.Next();
    ASSERT_LT(sample, samples);
    ASSERT_FALSE(seen[sample]) << samples << " samples, position " << position;
    seen[sample] = true;
    ASSERT_EQ(plan.Where(sample), position) << samples << " samples";
  }
}

std::vector<OrderPolicy> Shuffles() {
  return {{.shuffle = Shuffle::kGlobal},
          {.shuffle = Shuffle::kWindow, .extent = 13, .window = 192, .lanes = 64},
          {.shuffle = Shuffle::kWindow, .extent = 100, .window = 16, .lanes = 4}};
}

TEST(PlanSlow, IsABijectionForEverySizeTo10To4) {
  for (const OrderPolicy& policy : Shuffles()) {
    for (uint64_t samples = 1; samples <= 10'000; ++samples) ExpectBijection(samples, policy, samples);
  }
}

TEST(PlanSlow, IsABijectionForRandomSizesTo10To6) {
  Rng rng(1);
  for (const OrderPolicy& policy : Shuffles()) {
    for (int i = 0; i < 60; ++i) ExpectBijection(1 + rng.Below(1'000'000), policy, rng.Next());
  }
}

TEST(PlanSlow, RoundTripsAtRandomSizesTo10To12) {
  Rng rng(2);
  for (const OrderPolicy& policy : Shuffles()) {
    for (int i = 0; i < 10'000; ++i) {
      const uint64_t samples = 1 + rng.Below(uint64_t{1} << (1 + rng.Below(40)));
      const Plan plan(samples, policy, rng.Next(), 0);
      for (int point = 0; point < 1000; ++point) {
        const uint64_t position = rng.Below(samples);
        ASSERT_EQ(plan.Where(plan.At(position)), position) << samples << " samples";
      }
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
