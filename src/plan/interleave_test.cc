#include "plan/interleave.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "plan/testing/chi_square.h"

namespace millrace {
namespace {

uint64_t Sum(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

/// Expects that each element is at one place, and that the inverse, and the runs of cycles say the same.
void ExpectBijection(const std::vector<uint64_t>& counts, uint64_t key) {
  const Interleave mix(counts, key);
  ASSERT_EQ(mix.size(), Sum(counts));
  std::vector<uint64_t> next(counts.size(), 0);  // elements of each part before the cycle
  std::vector<Interleave::Run> runs;
  for (uint64_t first = 0; first < mix.size();) {
    const Interleave::Cycle cycle = mix.CycleOf(first);
    ASSERT_EQ(cycle.first, first);
    mix.Runs(cycle, &runs);
    std::vector<Interleave::Element> sequence;
    for (const Interleave::Run& run : runs) {
      ASSERT_EQ(run.first, next[run.part]) << "the elements of a part go on from cycle to cycle";
      for (uint64_t i = 0; i < run.count; ++i) sequence.push_back({run.part, next[run.part]++});
    }
    ASSERT_EQ(sequence.size(), cycle.places);
    std::vector<uint64_t> offsets(cycle.places);
    std::iota(offsets.begin(), offsets.end(), uint64_t{0});
    mix.MapInCycle(cycle, offsets);
    for (uint64_t i = 0; i < cycle.places; ++i) {
      const Interleave::Element element = mix.At(first + i);
      ASSERT_EQ(element.part, sequence.at(offsets[i]).part);
      ASSERT_EQ(element.number, sequence.at(offsets[i]).number);
      ASSERT_EQ(mix.PositionOf(element), first + i);
      std::vector<uint64_t> one = {i};
      mix.MapInCycle(cycle, one);
      ASSERT_EQ(one[0], offsets[i]);
    }
    first += cycle.places;
  }
  ASSERT_EQ(next, counts);
}

TEST(Interleave, IsABijection) {
  Rng rng(1);
  for (uint64_t parts = 1; parts <= 40; ++parts) {
    for (int i = 0; i < 40; ++i) {
      std::vector<uint64_t> counts(parts);
      for (uint64_t& count : counts) count = rng.Below(uint64_t{1} << rng.Below(11));
      ExpectBijection(counts, rng.Next());
      if (HasFatalFailure()) FAIL() << parts << " parts, try " << i;
    }
  }
  ExpectBijection(std::vector<uint64_t>(1000, 7), 1);
  ExpectBijection({0, 0, 5, 0}, 1);
  ExpectBijection({1}, 1);
  ExpectBijection({0}, 1);
}

TEST(Interleave, RoundTripsAtSizesUpToTheLimit) {
  Rng rng(2);
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint64_t> counts(1 + rng.Below(20));
    for (uint64_t& count : counts) count = rng.Below(uint64_t{1} << rng.Below(56));
    counts[0] += 1;
    if (i == 0) counts = {Interleave::kMaxSize / 3, Interleave::kMaxSize - Interleave::kMaxSize / 3};
    const Interleave mix(counts, rng.Next());
    for (int point = 0; point < 20; ++point) {
      const uint64_t place = rng.Below(mix.size());
      const Interleave::Element element = mix.At(place);
      ASSERT_LT(element.number, counts[element.part]);
      ASSERT_EQ(mix.PositionOf(element), place);
    }
  }
}

/// At the end of every cycle each part has had its share, up to the roundings of half an element at each level of the
/// tree.
TEST(Interleave, NoPartIsEverFarFromItsShare) {
  Rng rng(3);
  for (const uint64_t parts : {2u, 3u, 7u, 64u, 300u}) {
    std::vector<uint64_t> counts(parts);
    for (uint64_t& count : counts) count = rng.Below(uint64_t{1} << (4 + rng.Below(12)));
    const Interleave mix(counts, 5);
    std::vector<uint64_t> had(parts, 0);
    std::vector<Interleave::Run> runs;
    for (uint64_t end = 0; end < mix.size();) {
      const Interleave::Cycle cycle = mix.CycleOf(end);
      mix.Runs(cycle, &runs);
      for (const Interleave::Run& run : runs) had[run.part] += run.count;
      end = cycle.first + cycle.places;
      for (size_t part = 0; part < parts; ++part) {
        const double share =
            static_cast<double>(counts[part]) * static_cast<double>(end) / static_cast<double>(mix.size());
        ASSERT_LE(std::abs(static_cast<double>(had[part]) - share), 0.01 + 0.5 * std::bit_width(parts - 1))
            << parts << " parts, part " << part;
      }
    }
  }
}

/// Ranks that take every n-th place get the same of every part, by chance: no pattern repeats itself from cycle to
/// cycle.
TEST(Interleave, EveryResidueHasItsShare) {
  const std::vector<uint64_t> counts = {50'000, 50'000, 25'000};
  const Interleave mix(counts, 9);
  for (const uint64_t world : {2u, 3u, 8u, 64u, 128u}) {
    for (const uint64_t part : {0u, 1u, 2u}) {
      std::vector<uint64_t> had(world, 0);
      for (uint64_t place = 0; place < mix.size(); ++place) had[place % world] += mix.At(place).part == part ? 1 : 0;
      EXPECT_LT(ChiSquareZ(had), 5) << world;
    }
  }
}

}  // namespace
}  // namespace millrace
