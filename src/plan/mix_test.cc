#include "plan/mix.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "base/testing/test_all.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/mix_order.h"
#include "plan/plan.h"
#include "plan/position.h"
#include "plan/testing/chi_square.h"
#include "plan/testing/policies.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Mix MakeMix(const std::vector<uint64_t>& sizes, const std::vector<uint64_t>& weights, uint64_t length) {
  const OrderPolicy policies[] = {Windowed(3, 8, 4), {.shuffle = Shuffle::kGlobal}, {.shuffle = Shuffle::kNone}};
  Mix mix;
  for (size_t part = 0; part < sizes.size(); ++part) mix.parts.push_back({sizes[part], policies[part % 3]});
  mix.length = length;
  mix.stages = {{0, weights}};
  return mix;
}

Mix RandomMix(Rng& rng, bool fresh) {
  const uint64_t parts = 1 + rng.Below(6);
  std::vector<uint64_t> sizes(parts);
  for (uint64_t& size : sizes) size = 1 + rng.Below(uint64_t{1} << rng.Below(8));
  Mix mix = MakeMix(sizes, std::vector<uint64_t>(parts, 0), 1 + rng.Below(400));
  mix.fresh_passes = fresh;
  mix.stages.clear();
  for (uint64_t from = 0, stages = 1 + rng.Below(4); mix.stages.size() < stages;
       from += 1 + rng.Below(3 * mix.length)) {
    Mix::Stage stage{from, {}};
    for (uint64_t part = 0; part < parts; ++part) stage.weights.push_back(rng.Below(4));
    stage.weights[rng.Below(parts)] += 1;
    mix.stages.push_back(stage);
  }
  EXPECT_TRUE(mix.Check().ok()) << mix.Check();
  return mix;
}

struct Place {
  size_t part;
  uint64_t sample;
};
Place Find(const Mix& mix, uint64_t item) {
  size_t part = 0;
  for (; item >= mix.parts[part].items; ++part) item -= mix.parts[part].items;
  return {part, item};
}

/// Counts how often each item comes in an epoch. The cursor, At, PositionOf and Positions say the same.
std::vector<uint64_t> Walk(const Mix& mix, uint64_t seed, uint64_t epoch) {
  const Plan plan(mix, seed, epoch);
  EXPECT_EQ(plan.size(), mix.length);
  EXPECT_EQ(plan.items(), mix.items());
  std::vector<std::vector<uint64_t>> positions(mix.items());
  std::set<std::pair<uint64_t, uint64_t>> draws;
  Plan::Cursor cursor(plan, 0);
  for (uint64_t position = 0; position < plan.size(); ++position) {
    EXPECT_EQ(cursor.position(), position);
    const Draw draw = plan.DrawAt(position);
    EXPECT_EQ(cursor.NextDraw(), draw) << position;
    EXPECT_LT(draw.item, mix.items());
    EXPECT_TRUE(draws.insert({draw.item, draw.turn}).second) << "no draw comes twice";
    EXPECT_EQ(plan.PositionOf(draw), plan.invertible() ? position : plan.size());
    positions[draw.item].push_back(position);
  }
  EXPECT_TRUE(cursor.done());
  std::vector<uint64_t> counts;
  for (uint64_t item = 0; item < positions.size(); ++item) {
    EXPECT_EQ(plan.Positions(item), positions[item]) << item;
    EXPECT_EQ(plan.PositionOf(item), positions[item].empty() ? plan.size() : positions[item].front());
    uint64_t from = 0;
    for (const uint64_t position : positions[item]) {
      EXPECT_EQ(plan.NextPosition(item, from), position) << item << " from " << from;
      EXPECT_EQ(plan.NextPosition(item, position), position) << item;
      from = position + 1;
    }
    EXPECT_EQ(plan.NextPosition(item, from), plan.size()) << item << " from " << from;
    counts.push_back(positions[item].size());
  }
  return counts;
}

std::vector<uint64_t> OfParts(const Mix& mix, const std::vector<uint64_t>& items) {
  std::vector<uint64_t> counts(mix.parts.size(), 0);
  for (uint64_t item = 0; item < items.size(); ++item) counts[Find(mix, item).part] += items[item];
  return counts;
}

TEST(Mix, EveryEpochHasTheExactCounts) {
  Rng rng(1);
  for (int i = 0; i < (kSanitized ? 40 : 300); ++i) {
    const Mix mix = RandomMix(rng, i % 2 == 0);
    for (const uint64_t epoch : {uint64_t{0}, uint64_t{1}, uint64_t{2}, 3 + rng.Below(50)}) {
      const std::vector<uint64_t> counts = OfParts(mix, Walk(mix, 7, epoch));
      ASSERT_EQ(counts, mix.CountsOf(7, epoch));
      ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), mix.length);
      const std::vector<double> shares = mix.SharesOf(epoch);
      for (size_t part = 0; part < counts.size() && mix.stages.size() == 1; ++part) {
        ASSERT_LT(std::abs(static_cast<double>(counts[part]) - shares[part] * static_cast<double>(mix.length)), 1);
      }
      ASSERT_FALSE(HasFailure()) << "mix " << i << " epoch " << epoch;
    }
  }
}

/// Rounding does not add up. Each stage deals with its own epochs, and with what it has of two others.
TEST(Mix, EpochsMakeUpForEachOther) {
  Rng rng(8);
  for (int i = 0; i < 300; ++i) {
    const Mix mix = RandomMix(rng, i % 2 == 0);
    const uint64_t seed = rng.Next();
    std::vector<double> ahead(mix.parts.size(), 0);
    for (uint64_t epoch = 0; epoch < 300; ++epoch) {
      const std::vector<uint64_t> counts = mix.CountsOf(seed, epoch);
      const std::vector<double> shares = mix.SharesOf(epoch);
      const double bound = static_cast<double>(mix.stages.size()) * (3 + std::log2(epoch + 1.0) / 3);
      for (size_t part = 0; part < ahead.size(); ++part) {
        ahead[part] += static_cast<double>(counts[part]) - shares[part] * static_cast<double>(mix.length);
        ASSERT_LE(std::abs(ahead[part]), bound) << "mix " << i << " epoch " << epoch;
      }
    }
  }
}

/// 45 classes and epochs of 10 samples, say: each class has its turn, and none another's.
TEST(Mix, PartsOfEqualWeightTakeTurns) {
  const uint64_t cases[][2] = {{3, 10}, {45, 10}, {1000, 1}, {7, 700}};
  for (const auto& [parts, length] : cases) {
    const Mix mix = MakeMix(std::vector<uint64_t>(parts, 3), std::vector<uint64_t>(parts, 1), length);
    std::vector<uint64_t> counted(parts, 0);
    constexpr uint64_t kEpochs = 2000;
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const std::vector<uint64_t> counts = mix.CountsOf(1, epoch);
      for (size_t part = 0; part < parts; ++part) counted[part] += counts[part];
    }
    const double wanted = static_cast<double>(kEpochs * length) / static_cast<double>(parts);
    for (const uint64_t count : counted) EXPECT_NEAR(static_cast<double>(count), wanted, 4.7);
  }
}

TEST(Mix, ASeedFavoursNoPart) {
  const Mix mix = MakeMix({1000, 10}, {1000, 1}, 400);
  uint64_t drawn = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) drawn += mix.CountsOf(seed, 0)[1];
  EXPECT_NEAR(static_cast<double>(drawn), 2000 * 400.0 / 1001, 100);
}

/// Passes continue from epoch to epoch: whatever the weights, at every point of the run no sample of a part has come
/// twice more often than another. Only within a cycle of the interleaving, two passes may overlap.
TEST(Mix, PassesGoOnFromEpochToEpoch) {
  Rng rng(2);
  for (int i = 0; i < 100; ++i) {
    const Mix mix = RandomMix(rng, false);
    std::vector<uint64_t> drawn(mix.items(), 0);
    std::vector<std::set<uint64_t>> turns(mix.items());
    for (uint64_t epoch = 0; epoch < 6; ++epoch) {
      const Plan plan(mix, 3, epoch);
      for (uint64_t position = 0; position < plan.size(); ++position) {
        const Draw draw = plan.DrawAt(position);
        ++drawn[draw.item];
        ASSERT_TRUE(turns[draw.item].insert(draw.turn).second) << "a sample comes once in a pass";
      }
      uint64_t item = 0;
      for (const Mix::Part& part : mix.parts) {
        const auto begin = drawn.begin() + static_cast<std::ptrdiff_t>(item);
        const auto [low, high] = std::minmax_element(begin, begin + static_cast<std::ptrdiff_t>(part.items));
        ASSERT_LE(*high - *low, 1u) << "mix " << i << " epoch " << epoch;
        item += part.items;
      }
    }
  }
}

/// Fresh passes: in each epoch, of the samples of a part each comes floor or ceil of (draws / samples) times.
TEST(Mix, FreshPassesAreEvenInEveryEpoch) {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    const Mix mix = RandomMix(rng, true);
    std::set<std::pair<size_t, uint64_t>> passes;
    for (const uint64_t epoch : {0u, 1u, 5u}) {
      const std::vector<uint64_t> counts = mix.CountsOf(4, epoch);
      const std::vector<uint64_t> items = Walk(mix, 4, epoch);
      const Plan plan(mix, 4, epoch);
      std::set<std::pair<size_t, uint64_t>> begun;
      for (uint64_t position = 0; position < plan.size(); ++position) {
        const Draw draw = plan.DrawAt(position);
        begun.insert({Find(mix, draw.item).part, draw.turn});
      }
      for (const auto& pass : begun) ASSERT_TRUE(passes.insert(pass).second) << "a pass of two epochs";
      for (uint64_t item = 0; item < items.size(); ++item) {
        const size_t part = Find(mix, item).part;
        const uint64_t floor = counts[part] / mix.parts[part].items;
        ASSERT_TRUE(items[item] == floor || (items[item] == floor + 1 && counts[part] % mix.parts[part].items != 0));
      }
    }
  }
}

TEST(Mix, ANewEpochOrSeedIsANewOrder) {
  for (const bool fresh : {false, true}) {
    Mix mix = MakeMix({100, 200}, {1, 1}, 300);
    mix.fresh_passes = fresh;
    std::set<std::vector<uint64_t>> orders;
    for (const uint64_t seed : {0u, 1u}) {
      for (const uint64_t epoch : {0u, 1u, 2u}) {
        std::vector<uint64_t> order;
        const Plan plan(mix, seed, epoch);
        for (uint64_t p = 0; p < plan.size(); ++p) order.push_back(plan.At(p));
        EXPECT_TRUE(orders.insert(order).second);
      }
    }
  }
}

/// Returns the most by which any stretch of the first epochs is off the shares of a part.
double MostDrift(const Mix& mix, uint64_t epochs) {
  std::vector<double> ahead(mix.parts.size(), 0);
  std::vector<double> low = ahead;
  std::vector<double> high = ahead;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const Plan plan(mix, 1, epoch);
    for (uint64_t p = 0; p < plan.size(); ++p) {
      const std::vector<uint64_t>& weights = mix.StageAt(epoch * mix.length + p).weights;
      const auto sum = static_cast<double>(std::accumulate(weights.begin(), weights.end(), uint64_t{0}));
      ahead[Find(mix, plan.At(p)).part] += 1;
      for (size_t part = 0; part < ahead.size(); ++part) {
        ahead[part] -= static_cast<double>(weights[part]) / sum;
        low[part] = std::min(low[part], ahead[part]);
        high[part] = std::max(high[part], ahead[part]);
      }
    }
  }
  double drift = 0;
  for (size_t part = 0; part < ahead.size(); ++part) drift = std::max(drift, high[part] - low[part]);
  return drift;
}

TEST(Mix, NoStretchDriftsMoreThanACycle) {
  EXPECT_LT(MostDrift(MakeMix({1000, 50, 7}, {70, 25, 5}, 5000), 3), 64);
  EXPECT_LT(MostDrift(MakeMix({1000, 50, 7}, {1, 1, 1}, 10), 300), 64);
  EXPECT_LT(MostDrift(MakeMix(std::vector<uint64_t>(100, 5), std::vector<uint64_t>(100, 1), 730), 5), 400);
  Rng rng(9);
  for (int i = 0; i < 200; ++i) {
    Mix mix = RandomMix(rng, i % 2 == 0);
    mix.draws = i % 3 == 0 ? Draws::kReplacement : Draws::kExact;
    ASSERT_LT(MostDrift(mix, 8), 64) << "mix " << i;
  }
}

TEST(Mix, WeightsFollowTheirScheduleByTheGlobalCount) {
  Mix mix = MakeMix({50, 50}, {1, 0}, 100);
  mix.stages = {{0, {1, 0}}, {150, {1, 1}}, {250, {0, 1}}};
  EXPECT_THAT(mix.CountsOf(1, 0), ElementsAre(100, 0));
  EXPECT_THAT(mix.CountsOf(1, 1), ElementsAre(75, 25));
  EXPECT_THAT(mix.CountsOf(1, 2), ElementsAre(25, 75));
  EXPECT_THAT(mix.CountsOf(1, 3), ElementsAre(0, 100));
  EXPECT_THAT(mix.CountsOf(1, UINT64_MAX), ElementsAre(0, 100));
  const Plan plan(mix, 1, 1);
  for (uint64_t p = 0; p < 50; ++p) EXPECT_LT(plan.At(p), 50u);
}

TEST(Mix, CursorAgreesWithAtFromAnyPlaceWithAnyStride) {
  Rng rng(5);
  std::vector<Mix> mixes = {MakeMix({1}, {1}, 1),
                            MakeMix(std::vector<uint64_t>(70, 13), std::vector<uint64_t>(70, 1), 3000),
                            MakeMix(std::vector<uint64_t>(1100, 3), std::vector<uint64_t>(1100, 1), 9000)};
  // Passes in the midst of which a reader takes over, of more parts than get one in a cycle.
  std::vector<uint64_t> sizes(150);
  for (uint64_t& size : sizes) size = MixReader::kBeforeReader / 2 + rng.Below(200);
  mixes.push_back(MakeMix(sizes, std::vector<uint64_t>(sizes.size(), 1), 30'000));
  for (int i = 0; i < 30; ++i) mixes.push_back(RandomMix(rng, i % 2 == 0));
  for (Mix& mix : mixes) {
    for (const Draws draws : {Draws::kExact, Draws::kReplacement, Draws::kIndependent}) {
      mix.draws = draws;
      const Plan plan(mix, 2, 3);
      for (const uint64_t stride : {1u, 2u, 3u, 16u, 100u, 997u}) {
        for (const uint64_t first :
             {uint64_t{0}, uint64_t{7}, mix.length / 2, mix.length - 1, mix.length, mix.length + 5}) {
          Plan::Cursor cursor(plan, first, stride);
          uint64_t position = first;
          for (; !cursor.done(); position += stride) {
            ASSERT_EQ(cursor.position(), position);
            ASSERT_EQ(cursor.NextDraw(), plan.DrawAt(position)) << position << " stride " << stride;
          }
          ASSERT_GE(position, mix.length);
        }
      }
    }
  }
}

TEST(Mix, RoundTripsAtLargeSizesAndEpochs) {
  Rng rng(6);
  for (int i = 0; i < 300; ++i) {
    std::vector<uint64_t> sizes(1 + rng.Below(5));
    std::vector<uint64_t> weights(sizes.size());
    for (uint64_t& size : sizes) size = 1 + rng.Below(uint64_t{1} << (1 + rng.Below(40)));
    for (uint64_t& weight : weights) weight = 1 + rng.Below(1000);
    Mix mix = MakeMix(sizes, weights, 1 + rng.Below(uint64_t{1} << (1 + rng.Below(40))));
    mix.fresh_passes = i % 2 == 0;
    const uint64_t epoch = i % 3 == 0 ? UINT64_MAX - rng.Below(3) : rng.Next() >> rng.Below(64);
    const Plan plan(mix, rng.Next(), epoch);
    for (int point = 0; point < 30; ++point) {
      const uint64_t position = rng.Below(mix.length);
      const Draw draw = plan.DrawAt(position);
      ASSERT_LT(draw.item, mix.items());
      ASSERT_EQ(plan.PositionOf(draw), position);
    }
  }
}

TEST(Mix, HoldsAtTheLimits) {
  Mix mix = MakeMix({Plan::kMaxSamples - 1, 1}, {Mix::kMaxWeight, 1}, uint64_t{1} << 60);
  ASSERT_TRUE(mix.Check().ok()) << mix.Check();
  const Plan plan(mix, 1, UINT64_MAX);
  for (const uint64_t position : {uint64_t{0}, mix.length / 2, mix.length - 1}) {
    EXPECT_EQ(plan.PositionOf(plan.DrawAt(position)), position);
  }
}

TEST(Mix, IndependentDrawsFollowTheWeights) {
  Mix mix = MakeMix({10, 100, 30}, {2, 1, 1}, 40'000);
  mix.draws = Draws::kIndependent;
  std::vector<uint64_t> items = Walk(mix, 5, 0);
  const std::vector<uint64_t> parts = OfParts(mix, items);
  EXPECT_NEAR(static_cast<double>(parts[0]), 20'000, 500);
  EXPECT_NEAR(static_cast<double>(parts[1]), 10'000, 500);
  items.resize(10);
  EXPECT_LT(std::abs(ChiSquareZ(items)), 5);
  EXPECT_NE(parts, mix.CountsOf(1, 0));
}

TEST(Mix, ReplacementKeepsTheCounts) {
  Mix mix = MakeMix({50, 200}, {1, 1}, 20'000);
  mix.draws = Draws::kReplacement;
  std::vector<uint64_t> items = Walk(mix, 5, 0);
  EXPECT_THAT(OfParts(mix, items), ElementsAre(10'000, 10'000));
  items.resize(50);
  EXPECT_LT(std::abs(ChiSquareZ(items)), 5);
  EXPECT_GT(*std::max_element(items.begin(), items.end()), 201u);
}

TEST(Mix, ChecksItsNumbers) {
  const auto message = [](const Mix& mix) {
    const absl::Status status = mix.Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(MakeMix({5, 0}, {1, 0}, 10).Check().ok());
  EXPECT_THAT(message(MakeMix({}, {}, 10)), HasSubstr("parts"));
  EXPECT_THAT(message(MakeMix({5}, {1}, 0)), HasSubstr("epoch"));
  EXPECT_THAT(message(MakeMix({5, 5}, {1}, 10)), HasSubstr("1 weights for 2 parts"));
  EXPECT_THAT(message(MakeMix({5, 5}, {0, 0}, 10)), HasSubstr("all weights are 0"));
  EXPECT_THAT(message(MakeMix({5, 0}, {1, 1}, 10)), HasSubstr("part 1 has a weight but no samples"));
  EXPECT_THAT(message(MakeMix({5}, {Mix::kMaxWeight + 1}, 10)), HasSubstr("weight above"));
  EXPECT_THAT(message(MakeMix({Plan::kMaxSamples, 1}, {1, 1}, 10)), HasSubstr("more samples"));
  Mix mix = MakeMix({5}, {1}, 10);
  mix.stages = {{5, {1}}};
  EXPECT_THAT(message(mix), HasSubstr("the first one from sample 0"));
  mix.stages = {{0, {1}}, {7, {1}}, {7, {1}}};
  EXPECT_THAT(message(mix), HasSubstr("ascending"));
}

TEST(Mix, BoundsItsWeights) {
  Mix mix = MakeMix(std::vector<uint64_t>(2048, 1), std::vector<uint64_t>(2048, 1), 10);
  while (mix.stages.size() < Mix::kMaxWeights / 2048) mix.stages.push_back({mix.stages.size(), mix.stages[0].weights});
  EXPECT_TRUE(mix.Check().ok());
  mix.stages.push_back({mix.stages.size(), mix.stages[0].weights});
  EXPECT_THAT(mix.Check().message(), HasSubstr("513 stages of 2048 weights; all together may have 1048576"));
}

TEST(MixWeights, KeepProportions) {
  const auto counts = [](const std::vector<double>& weights, uint64_t length) {
    const std::vector<uint64_t> scaled = *MixWeights(weights);
    return MakeMix(std::vector<uint64_t>(scaled.size(), 1), scaled, length).CountsOf(1, 0);
  };
  EXPECT_THAT(counts({3.0, 1.0, 0.0}, 4), ElementsAre(3, 1, 0));
  EXPECT_THAT(counts({0.75, 0.25}, 1000), ElementsAre(750, 250));
  EXPECT_THAT(counts({1e-300, 2e-300}, 3), ElementsAre(1, 2));
  EXPECT_THAT(counts({1e300, 5e299}, 3), ElementsAre(2, 1));
  EXPECT_THAT(counts({0.7, 0.2, 0.1}, 1000), ElementsAre(700, 200, 100));
  EXPECT_EQ(MixWeights(std::vector{1e20, 1e-20})->at(1), 1u);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights : std::vector<std::vector<double>>{{}, {0}, {-1, 2}, {NAN}, {infinity}}) {
    EXPECT_EQ(MixWeights(weights).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(MixFingerprint, DependsOnAllThatDecidesTheOrder) {
  const std::vector<uint64_t> parts = {11, 22};
  const Mix mix = MakeMix({5, 7}, {1, 2}, 10);
  std::set<uint64_t> seen = {OrderFingerprint(parts, mix, 1)};
  EXPECT_EQ(OrderFingerprint(parts, mix, 1), *seen.begin());
  const auto differs = [&](const std::vector<uint64_t>& ids, const Mix& other, uint64_t seed) {
    EXPECT_TRUE(seen.insert(OrderFingerprint(ids, other, seed)).second);
  };
  differs({11, 23}, mix, 1);
  differs({22, 11}, mix, 1);
  differs(parts, mix, 2);
  differs(parts, MakeMix({5, 8}, {1, 2}, 10), 1);
  differs(parts, MakeMix({5, 7}, {1, 3}, 10), 1);
  differs(parts, MakeMix({5, 7}, {1, 2}, 11), 1);
  Mix other = mix;
  other.fresh_passes = true;
  differs(parts, other, 1);
  other = mix;
  other.draws = Draws::kIndependent;
  differs(parts, other, 1);
  other = mix;
  other.stages.push_back({50, {1, 2}});
  differs(parts, other, 1);
  other = mix;
  other.parts[0].policy.extent = 4;
  differs(parts, other, 1);
}

TEST(MixGolden, Counts) {
  Mix mix = MakeMix({5, 5, 5}, {1, 1, 1}, 10);
  EXPECT_THAT(mix.CountsOf(7, 0), ElementsAre(4, 3, 3));
  EXPECT_THAT(mix.CountsOf(7, 1), ElementsAre(3, 3, 4));
  EXPECT_THAT(mix.CountsOf(7, 1000), ElementsAre(4, 3, 3));
  mix.stages.push_back({25, {1, 2, 4}});
  EXPECT_THAT(mix.CountsOf(7, 2), ElementsAre(2, 3, 5));
  EXPECT_THAT(mix.CountsOf(7, 3), ElementsAre(1, 3, 6));
}

/// These orders are a promise, as in plan_golden_test.cc.
TEST(MixGolden, Orders) {
  const auto order = [](const Mix& mix, uint64_t epoch, uint64_t positions) {
    const Plan plan(mix, 7, epoch);
    std::vector<uint64_t> found;
    for (uint64_t p = 0; p < positions; ++p) found.push_back(plan.At(p));
    return found;
  };
  const auto digest = [&](const Mix& mix, uint64_t epoch) {
    Xxh3Stream hash;
    for (const uint64_t item : order(mix, epoch, mix.length)) hash.UpdateLe64(item);
    return hash.Digest().Hex();
  };
  Mix small = MakeMix({4, 6}, {1, 1}, 12);
  EXPECT_THAT(order(small, 0, 12), ElementsAre(6, 7, 0, 0, 3, 9, 1, 4, 2, 5, 8, 2));
  EXPECT_THAT(order(small, 3, 12), ElementsAre(0, 5, 0, 1, 9, 2, 1, 4, 7, 8, 3, 6));
  Mix large = MakeMix({1000, 400, 77}, {50, 30, 20}, 10'000);
  EXPECT_EQ(digest(large, 0), "2e83ce1de72d1c6222885b0ae3c6c38a");
  EXPECT_EQ(digest(large, 1000), "f5d75e2f1b43637ca65668539ca4a465");
  large.fresh_passes = true;
  EXPECT_EQ(digest(large, 1), "53ea07fafb01fcee64ced4998e50348c");
  large.stages.push_back({15'000, {1, 1, 0}});
  EXPECT_EQ(digest(large, 1), "acbba42392867bf875911e50a045ee21");
  large.draws = Draws::kReplacement;
  EXPECT_EQ(digest(large, 1), "76390cbc6abe368a792aedb90f305a83");
  large.draws = Draws::kIndependent;
  EXPECT_EQ(digest(large, 1), "c9b17f495a9e246e23eb0289ea9fe302");
  EXPECT_EQ(OrderFingerprint(std::vector<uint64_t>{1, 2, 3}, large, 5), 15706655817710429565u);
}

}  // namespace
}  // namespace millrace
