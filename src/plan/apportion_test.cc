#include "plan/apportion.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using Total = Apportionment::Total;

std::vector<uint64_t> RandomWeights(Rng& rng) {
  std::vector<uint64_t> weights(1 + rng.Below(uint64_t{1} << rng.Below(8)));
  const uint64_t most = uint64_t{2} << rng.Below(40);
  for (uint64_t& weight : weights) weight = rng.Below(most);
  weights[rng.Below(weights.size())] += 1;
  return weights;
}

uint64_t SumOf(const std::vector<uint64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
}

TEST(Apportionment, EveryTurnRoundsSharesDownOrUp) {
  Rng rng(1);
  for (int i = 0; i < 2000; ++i) {
    const std::vector<uint64_t> weights = RandomWeights(rng);
    const uint64_t length = 1 + rng.Below(uint64_t{1} << (1 + rng.Below(60)));
    const std::vector<uint64_t> counts = Apportionment(weights, rng.Next()).CountsOf(length, rng.Next());
    ASSERT_EQ(SumOf(counts), length);
    for (size_t part = 0; part < weights.size(); ++part) {
      const Total share = static_cast<Total>(weights[part]) * length;
      const auto floor = static_cast<uint64_t>(share / SumOf(weights));
      ASSERT_GE(counts[part], floor);
      ASSERT_LE(counts[part], floor + (share % SumOf(weights) != 0 ? 1 : 0));
    }
  }
}

TEST(Apportionment, HoldsAtTheLimits) {
  const std::vector<uint64_t> weights = {uint64_t{1} << 60, 1, (uint64_t{1} << 60) - 2};
  const Apportionment shares(weights, 5);
  std::vector<Total> totals(3, 0);
  shares.AddTotals(uint64_t{1} << 60, 3, UINT64_MAX, totals);
  EXPECT_EQ(totals[0] + totals[1] + totals[2], static_cast<Total>(UINT64_MAX) << 60);
  // A part with 1 of 2^61 has half a place a turn.
  EXPECT_LE(std::abs(static_cast<int64_t>(totals[1] - (Total{1} << 63))), 25);
  EXPECT_EQ(SumOf(shares.CountsOf(uint64_t{1} << 60, UINT64_MAX)), uint64_t{1} << 60);
}

TEST(Apportionment, TotalsAreTheSumsOfTurnsAndKeepToTheirShares) {
  Rng rng(2);
  for (int i = 0; i < 300; ++i) {
    const std::vector<uint64_t> weights = RandomWeights(rng);
    const uint64_t length = 1 + rng.Below(uint64_t{1} << (1 + rng.Below(10)));
    const Apportionment shares(weights, rng.Next());
    const uint64_t first = rng.Next() >> rng.Below(64);
    std::vector<Total> totals(weights.size(), 3);
    std::vector<uint64_t> counted(weights.size(), 0);
    for (uint64_t turns = 0; turns < 400; ++turns) {
      for (size_t part = 0; part < weights.size() && turns > 0; ++part) {
        const double wanted = static_cast<double>(turns * length) * static_cast<double>(weights[part]) /
                              static_cast<double>(SumOf(weights));
        const double bound = 1 + std::log2(static_cast<double>(turns)) / 3;
        ASSERT_LT(std::abs(static_cast<double>(counted[part]) - wanted), bound + 1e-6) << turns << " turns";
      }
      if (turns % 37 < 2) {
        std::fill(totals.begin(), totals.end(), 3);
        shares.AddTotals(length, first, turns, totals);
        for (size_t part = 0; part < weights.size(); ++part) ASSERT_EQ(totals[part], counted[part] + 3) << turns;
      }
      const std::vector<uint64_t> counts = shares.CountsOf(length, first + turns);
      for (size_t part = 0; part < weights.size(); ++part) counted[part] += counts[part];
    }
  }
}

/// A part with share s < 1 has a place in any 2 / s turns.
TEST(Apportionment, NoPartStaysAwayForLong) {
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<uint64_t> weights = RandomWeights(rng);
    const uint64_t length = 1 + rng.Below(20);
    const Apportionment shares(weights, rng.Next());
    std::vector<uint64_t> last(weights.size(), 0);
    for (uint64_t turn = 1; turn <= 500; ++turn) {
      const std::vector<uint64_t> counts = shares.CountsOf(length, turn);
      for (size_t part = 0; part < weights.size(); ++part) {
        if (counts[part] > 0) last[part] = turn;
        if (weights[part] == 0) continue;
        const double share =
            static_cast<double>(length) * static_cast<double>(weights[part]) / static_cast<double>(SumOf(weights));
        ASSERT_LE(static_cast<double>(turn - last[part]), std::ceil(2 / share)) << "share " << share;
      }
    }
  }
}

/// Over keys, each part has its share on average, and no two parts exclude each other.
TEST(Apportionment, NoKeyedChoiceIsFavoured) {
  constexpr int kKeys = 20'000;
  const std::vector<uint64_t> weights = {3, 1, 1, 1, 1, 1};
  std::vector<int> counted(weights.size(), 0);
  int together = 0;
  for (int key = 0; key < kKeys; ++key) {
    const std::vector<uint64_t> counts = Apportionment(weights, static_cast<uint64_t>(key)).CountsOf(3, 0);
    for (size_t part = 0; part < weights.size(); ++part) counted[part] += static_cast<int>(counts[part]);
    together += counts[1] > 0 && counts[2] > 0 ? 1 : 0;
  }
  const double unit = kKeys * 3.0 / 8;
  EXPECT_NEAR(counted[0], 3 * unit, 400);
  for (size_t part = 1; part < weights.size(); ++part) EXPECT_NEAR(counted[part], unit, 400);
  EXPECT_GT(together, kKeys / 50);
}

TEST(Apportionment, SharesThatAreWholeNumbersStayThemselves) {
  const std::vector<uint64_t> weights = {70, 20, 0, 10};
  for (uint64_t turn = 0; turn < 100; ++turn) {
    EXPECT_THAT(Apportionment(weights, turn).CountsOf(1000, turn), ElementsAre(700, 200, 0, 100));
  }
}

}  // namespace
}  // namespace millrace
