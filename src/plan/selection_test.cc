#include "plan/selection.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "base/testing/test_all.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

Selection MakeSelection(uint64_t universe, const std::vector<uint64_t>& members) {
  Selection::Builder builder(universe);
  for (const uint64_t member : members) builder.Add(member);
  return std::move(builder).Finish();
}

/// Computes what positions hold, by definition. For each chunk it is the number of members. Unless these are none or
/// all, their low halves follow, or beyond 4,096 of them a bit for each number.
uint64_t FingerprintOf(uint64_t universe, const std::vector<uint64_t>& members) {
  Xxh3Stream hash;
  hash.UpdateLe64(universe);
  auto member = members.begin();
  for (uint64_t first = 0; first < universe; first += 65536) {
    std::vector<uint16_t> lows;
    for (; member != members.end() && *member < first + 65536; ++member) {
      lows.push_back(static_cast<uint16_t>(*member - first));
    }
    hash.UpdateLe64(lows.size());
    if (lows.empty() || lows.size() == std::min<uint64_t>(65536, universe - first)) continue;
    std::vector<uint64_t> bits(lows.size() <= 4096 ? 0 : 1024);
    for (const uint16_t low : lows) {
      if (!bits.empty()) bits[low / 64] |= uint64_t{1} << (low % 64);
    }
    for (const uint64_t word : bits) hash.UpdateLe64(word);
    for (const uint16_t low : lows) {
      const uint8_t bytes[] = {static_cast<uint8_t>(low), static_cast<uint8_t>(low >> 8)};
      if (bits.empty()) hash.Update(std::as_bytes(std::span(bytes)));
    }
  }
  return hash.Digest().low;
}

std::vector<uint64_t> Consecutive(uint64_t first, uint64_t count) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// Each number is a member with this probability, in percent, which changes from stretch to stretch.
std::vector<uint64_t> DrawMembers(uint64_t universe, const std::vector<uint64_t>& percents, uint64_t stretch,
                                  Rng& rng) {
  std::vector<uint64_t> members;
  for (uint64_t number = 0; number < universe; ++number) {
    if (rng.Below(100) < percents[number / stretch % percents.size()]) members.push_back(number);
  }
  return members;
}

void ExpectIs(const Selection& selection, uint64_t universe, const std::vector<uint64_t>& members) {
  ASSERT_EQ(selection.universe(), universe);
  ASSERT_EQ(selection.size(), members.size());
  for (uint64_t rank = 0; rank < members.size(); ++rank) ASSERT_EQ(selection.At(rank), members[rank]) << rank;
  for (uint64_t first = 0; first <= members.size(); first += 1 + first / 5) {
    std::vector<uint64_t> read(std::min<uint64_t>(members.size() - first, 1 + first % 1000));
    if (first < members.size()) selection.Prefetch(first);
    selection.Read(first, read);
    ASSERT_TRUE(std::equal(read.begin(), read.end(), members.begin() + static_cast<std::ptrdiff_t>(first))) << first;
  }
  std::vector<uint64_t> all(members.size());
  selection.Read(0, all);
  ASSERT_EQ(all, members);
  uint64_t before = 0;
  for (uint64_t number = 0; number < universe; ++number) {
    const bool is_member = before < members.size() && members[before] == number;
    ASSERT_EQ(selection.RankOf(number), before) << number;
    ASSERT_EQ(selection.Contains(number), is_member) << number;
    before += is_member ? 1 : 0;
  }
  ASSERT_EQ(selection.RankOf(universe), members.size());
  ASSERT_EQ(selection.fingerprint(), FingerprintOf(universe, members));
}

Selection MakeOfList(uint64_t universe, const std::vector<uint64_t>& members) {
  NumberList list(universe, members.size());
  for (size_t i = 0; i < members.size(); ++i) list.Set(i, members[i]);
  return Selection::Of(universe, std::move(list));
}

/// Does as ExpectIs, but only looks for members, and for numbers beside them, beside the bounds of chunks and anywhere.
void ExpectIsAround(const Selection& selection, uint64_t universe, const std::vector<uint64_t>& members, Rng& rng) {
  ASSERT_EQ(selection.universe(), universe);
  ASSERT_EQ(selection.size(), members.size());
  ASSERT_EQ(selection.fingerprint(), FingerprintOf(universe, members));
  std::vector<uint64_t> numbers = {0, 1, universe / 2, universe - 1};
  for (const uint64_t member : members) {
    const uint64_t bound = member / Selection::kChunk * Selection::kChunk;
    for (const uint64_t number : {member - 1, member, member + 1, bound - 1, bound, bound + 1, rng.Below(universe)}) {
      if (number < universe) numbers.push_back(number);
    }
  }
  for (const uint64_t number : numbers) {
    const auto at = std::lower_bound(members.begin(), members.end(), number);
    ASSERT_EQ(selection.RankOf(number), static_cast<uint64_t>(at - members.begin())) << number;
    ASSERT_EQ(selection.Contains(number), at != members.end() && *at == number) << number;
  }
  ASSERT_EQ(selection.RankOf(universe), members.size());
  for (uint64_t rank = 0; rank < members.size(); ++rank) ASSERT_EQ(selection.At(rank), members[rank]) << rank;
  for (int i = 0; i < 20 && !members.empty(); ++i) {
    const uint64_t first = rng.Below(members.size());
    std::vector<uint64_t> read(1 + rng.Below(members.size() - first));
    selection.Prefetch(first);
    selection.Read(first, read);
    ASSERT_TRUE(std::equal(read.begin(), read.end(), members.begin() + static_cast<std::ptrdiff_t>(first))) << first;
  }
}

/// Draws so many numbers, all different: anywhere, or in `clumps` stretches without gaps that may touch.
std::vector<uint64_t> DrawSome(uint64_t universe, uint64_t count, uint64_t clumps, Rng& rng) {
  std::set<uint64_t> numbers;
  while (numbers.size() < count) {
    uint64_t number = rng.Below(universe);
    const uint64_t run = clumps == 0 ? 1 : count / clumps + 1;
    for (uint64_t i = 0; i < run && number < universe && numbers.size() < count; ++i) numbers.insert(number++);
  }
  return {numbers.begin(), numbers.end()};
}

TEST(Selection, EachSubsetOfFewNumbers) {
  for (uint64_t universe = 0; universe <= 13; ++universe) {
    for (uint64_t mask = 0; mask < uint64_t{1} << universe; ++mask) {
      std::vector<uint64_t> members;
      for (uint64_t number = 0; number < universe; ++number) {
        if ((mask >> number & 1) != 0) members.push_back(number);
      }
      ExpectIs(MakeSelection(universe, members), universe, members);
      ExpectIs(MakeOfList(universe, members), universe, members);
      if (::testing::Test::HasFatalFailure()) FAIL() << "universe " << universe << ", members " << mask;
    }
  }
}

TEST(Selection, FewMembersAreAListAndMoreAreChunks) {
  Rng rng(5);
  for (const uint64_t chunks : {1u, 2u, 3u, 17u, 500u}) {
    for (const uint64_t universe : {chunks * 65536 - 65535, chunks * 65536 - 1, chunks * 65536}) {
      for (const uint64_t count : {uint64_t{0}, uint64_t{1}, 10 * chunks - 1, 10 * chunks, 10 * chunks + 1}) {
        if (count > universe) continue;
        for (const uint64_t clumps : {0u, 1u, 3u}) {
          const std::vector<uint64_t> members = DrawSome(universe, count, clumps, rng);
          const Selection selection = MakeSelection(universe, members);
          ExpectIsAround(selection, universe, members, rng);
          ExpectIsAround(MakeOfList(universe, members), universe, members, rng);
          if (::testing::Test::HasFatalFailure()) FAIL() << universe << ", " << count << ", " << clumps;
          EXPECT_EQ(selection.memory_bytes(), MakeOfList(universe, members).memory_bytes());
          EXPECT_EQ(selection.memory_bytes() == 4 * count, count <= 10 * chunks);
          EXPECT_LE(selection.memory_bytes(), 2 * count + 24 * (chunks + 1) + 8448 * (count > 4096));
        }
      }
    }
  }
}

TEST(Selection, FewMembersThatFillChunks) {
  Rng rng(6);
  const uint64_t universe = uint64_t{14'000} * 65536 - 5;
  for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{65535}, uint64_t{65536}, universe - 140'000}) {
    for (const uint64_t count : {4096u, 4097u, 65535u, 65536u, 65537u, 140'000u}) {
      if (kSanitized && first > 1) continue;
      ExpectIsAround(MakeSelection(universe, Consecutive(first, count)), universe, Consecutive(first, count), rng);
      if (::testing::Test::HasFatalFailure()) FAIL() << first << ", " << count;
    }
  }
}

TEST(Selection, FewMembersBeyond32Bits) {
  Rng rng(7);
  const uint64_t limit = uint64_t{1} << 32;
  for (const uint64_t universe : {limit - 1, limit, limit + 1, 4 * limit}) {
    std::vector<uint64_t> members = {0, 1, limit - 65536, limit - 2, limit - 1, limit, limit + 1, 2 * limit, 3 * limit};
    std::erase_if(members, [&](uint64_t member) { return member >= universe; });
    const Selection selection = MakeSelection(universe, members);
    ExpectIsAround(selection, universe, members, rng);
    ExpectIsAround(MakeOfList(universe, members), universe, members, rng);
    EXPECT_EQ(selection.memory_bytes(), (universe > limit ? 6 : 4) * members.size());
  }
  // The first is the last list, and the second is the first that is chunks.
  for (const uint64_t count : {327'685u, 327'686u}) {
    const std::vector<uint64_t> members = DrawSome(limit + 1, count, 0, rng);
    const Selection selection = MakeSelection(limit + 1, members);
    ExpectIsAround(selection, limit + 1, members, rng);
    EXPECT_EQ(selection.memory_bytes() == 6 * count, count == 327'685u);
  }
}

TEST(Selection, AnyDensity) {
  Rng rng(8);
  for (int round = 0; round < (kSanitized ? 40 : 300); ++round) {
    const uint64_t universe = 1 + rng.Below(uint64_t{1} << (1 + rng.Below(24)));
    const uint64_t count = rng.Below(std::min<uint64_t>(universe, uint64_t{1} << rng.Below(18)) + 1);
    const std::vector<uint64_t> members = DrawSome(universe, count, rng.Below(2) * (1 + rng.Below(20)), rng);
    const Selection whole = MakeSelection(universe, members);
    ExpectIsAround(whole, universe, members, rng);
    ExpectIsAround(MakeOfList(universe, members), universe, members, rng);
    Selection::Builder joined(universe);
    auto member = members.begin();
    const uint64_t piece = (1 + rng.Below(20)) * Selection::kChunk;
    for (uint64_t first = 0; first < universe; first += piece) {
      Selection::Builder part(universe, first);
      for (; member != members.end() && *member < first + piece; ++member) part.Add(*member);
      joined.Append(std::move(part));
    }
    const Selection selection = std::move(joined).Finish();
    ExpectIsAround(selection, universe, members, rng);
    EXPECT_EQ(selection.memory_bytes(), whole.memory_bytes());
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ", universe " << universe << ", " << count;
  }
}

TEST(Selection, IsWhatAListIs) {
  Rng rng(1);
  for (const uint64_t universe : {1u, 2u, 63u, 64u, 65u, 1000u, 65535u, 65536u, 65537u, 300'000u}) {
    for (const std::vector<uint64_t>& percents : std::vector<std::vector<uint64_t>>{
             {0}, {100}, {50}, {1}, {7}, {99}, {0, 100}, {100, 0, 3, 90}, {0, 0, 0, 0, 1}, {60, 0, 0, 0, 0}}) {
      for (const uint64_t stretch : {777u, 65536u}) {
        const std::vector<uint64_t> members = DrawMembers(universe, percents, stretch, rng);
        ExpectIs(MakeSelection(universe, members), universe, members);
        if (::testing::Test::HasFatalFailure()) FAIL() << "universe " << universe;
      }
    }
  }
}

TEST(Selection, FewMembersFarApart) {
  const uint64_t universe = uint64_t{1} << 34;
  const std::vector<uint64_t> members = {0, 65536, 65537, universe / 2, universe - 2, universe - 1};
  const Selection selection = MakeSelection(universe, members);
  for (uint64_t rank = 0; rank < members.size(); ++rank) {
    EXPECT_EQ(selection.At(rank), members[rank]);
    std::vector<uint64_t> rest(members.size() - rank);
    selection.Read(rank, rest);
    EXPECT_EQ(rest, std::vector<uint64_t>(members.begin() + static_cast<std::ptrdiff_t>(rank), members.end()));
    EXPECT_EQ(selection.RankOf(members[rank]), rank);
    EXPECT_EQ(selection.RankOf(members[rank] + 1), rank + 1);
  }
  const Selection none = MakeSelection(universe, {});
  EXPECT_EQ(none.size(), 0u);
  EXPECT_FALSE(none.Contains(5));
  EXPECT_EQ(MakeSelection(0, {}).size(), 0u);
}

TEST(Selection, PiecesThatAreBuiltApartMakeTheSame) {
  Rng rng(2);
  constexpr uint64_t kUniverse = 500'000;
  const std::vector<uint64_t> members = DrawMembers(kUniverse, {40, 0, 2, 100}, 65536, rng);
  const Selection whole = MakeSelection(kUniverse, members);
  for (const uint64_t piece : {1u, 2u, 3u, 8u}) {
    Selection::Builder joined(kUniverse);
    auto member = members.begin();
    for (uint64_t first = 0; first < kUniverse; first += piece * Selection::kChunk) {
      Selection::Builder part(kUniverse, first);
      for (; member != members.end() && *member < first + piece * Selection::kChunk; ++member) part.Add(*member);
      joined.Append(std::move(part));
    }
    const Selection selection = std::move(joined).Finish();
    ExpectIs(selection, kUniverse, members);
    EXPECT_EQ(selection.fingerprint(), whole.fingerprint());
  }
}

TEST(Selection, TheFingerprintIsThatOfItsMembers) {
  Rng rng(3);
  std::set<uint64_t> seen;
  for (const uint64_t universe : {100'000u, 100'001u}) {
    for (const uint64_t percent : {0u, 1u, 50u, 100u}) {
      std::vector<uint64_t> members = DrawMembers(universe, {percent}, 1, rng);
      EXPECT_TRUE(seen.insert(MakeSelection(universe, members).fingerprint()).second);
      EXPECT_FALSE(seen.insert(MakeSelection(universe, members).fingerprint()).second);
      if (members.empty()) continue;
      members.erase(members.begin() + 500);
      EXPECT_TRUE(seen.insert(MakeSelection(universe, members).fingerprint()).second);
    }
  }
  // These are frozen, as positions hold them: every third of 200,000, every 1,000th, and all but one.
  std::vector<uint64_t> third;
  std::vector<uint64_t> rare;
  std::vector<uint64_t> most;
  for (uint64_t number = 0; number < 200'000; ++number) {
    if (number % 3 == 0) third.push_back(number);
    if (number % 1000 == 0) rare.push_back(number);
    if (number != 77) most.push_back(number);
  }
  EXPECT_EQ(MakeSelection(200'000, third).fingerprint(), 11734144635297661634u);
  EXPECT_EQ(MakeSelection(200'000, rare).fingerprint(), 11173192463052845015u);
  EXPECT_EQ(MakeSelection(200'000, most).fingerprint(), 7553094875327090106u);
  // The ranges have few members in many chunks: single ones, a run that is a bitmap in its chunk, and one that fills
  // chunks.
  const uint64_t large = uint64_t{1} << 34;
  EXPECT_EQ(MakeSelection(large, {0, 65536, 65537, large / 2, large - 2, large - 1}).fingerprint(),
            6758968522529546666u);
  EXPECT_EQ(MakeSelection(50'000'000, Consecutive(20'000'000, 6'000)).fingerprint(), 13573164559601915577u);
  EXPECT_EQ(MakeSelection(uint64_t{1} << 31, Consecutive(65'500, 140'000)).fingerprint(), 16952915749666215243u);
}

TEST(Selection, TakesAboutABitANumberAtMost) {
  Rng rng(4);
  constexpr uint64_t kUniverse = 1'000'000;
  constexpr uint64_t kBitmap = 16 * (8192 + 256) + 1000;
  for (const uint64_t percent : {0u, 1u, 6u, 7u, 50u, 90u, 100u}) {
    const Selection selection = MakeSelection(kUniverse, DrawMembers(kUniverse, {percent}, 1, rng));
    EXPECT_LT(selection.memory_bytes(), kBitmap) << percent;
    EXPECT_LT(selection.memory_bytes(), 2 * selection.size() + 1000 + kBitmap * (percent > 6)) << percent;
  }
}

}  // namespace
}  // namespace millrace
