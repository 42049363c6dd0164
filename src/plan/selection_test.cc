#include "plan/selection.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

Selection Make(uint64_t universe, const std::vector<uint64_t>& members) {
  Selection::Builder builder(universe);
  for (const uint64_t member : members) builder.Add(member);
  return std::move(builder).Finish();
}

/// Each number is a member with this probability, in percent, which changes from stretch to stretch.
std::vector<uint64_t> Draw(uint64_t universe, const std::vector<uint64_t>& percents, uint64_t stretch, Rng& rng) {
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
    ASSERT_EQ(selection.Where(number), before) << number;
    ASSERT_EQ(selection.Contains(number), is_member) << number;
    before += is_member ? 1 : 0;
  }
  ASSERT_EQ(selection.Where(universe), members.size());
}

TEST(Selection, IsWhatAListIs) {
  Rng rng(1);
  for (const uint64_t universe : {1u, 2u, 63u, 64u, 65u, 1000u, 65535u, 65536u, 65537u, 300'000u}) {
    for (const std::vector<uint64_t>& percents : std::vector<std::vector<uint64_t>>{
             {0}, {100}, {50}, {1}, {7}, {99}, {0, 100}, {100, 0, 3, 90}, {0, 0, 0, 0, 1}, {60, 0, 0, 0, 0}}) {
      for (const uint64_t stretch : {777u, 65536u}) {
        const std::vector<uint64_t> members = Draw(universe, percents, stretch, rng);
        ExpectIs(Make(universe, members), universe, members);
        if (testing::Test::HasFatalFailure()) FAIL() << "universe " << universe;
      }
    }
  }
}

TEST(Selection, FewMembersFarApart) {
  const uint64_t universe = uint64_t{1} << 34;
  const std::vector<uint64_t> members = {0, 65536, 65537, universe / 2, universe - 2, universe - 1};
  const Selection selection = Make(universe, members);
  for (uint64_t rank = 0; rank < members.size(); ++rank) {
    EXPECT_EQ(selection.At(rank), members[rank]);
    std::vector<uint64_t> rest(members.size() - rank);
    selection.Read(rank, rest);
    EXPECT_EQ(rest, std::vector<uint64_t>(members.begin() + static_cast<std::ptrdiff_t>(rank), members.end()));
    EXPECT_EQ(selection.Where(members[rank]), rank);
    EXPECT_EQ(selection.Where(members[rank] + 1), rank + 1);
  }
  const Selection none = Make(universe, {});
  EXPECT_EQ(none.size(), 0u);
  EXPECT_FALSE(none.Contains(5));
  EXPECT_EQ(Make(0, {}).size(), 0u);
}

TEST(Selection, PiecesThatAreBuiltApartMakeTheSame) {
  Rng rng(2);
  constexpr uint64_t kUniverse = 500'000;
  const std::vector<uint64_t> members = Draw(kUniverse, {40, 0, 2, 100}, 65536, rng);
  const Selection whole = Make(kUniverse, members);
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
      std::vector<uint64_t> members = Draw(universe, {percent}, 1, rng);
      EXPECT_TRUE(seen.insert(Make(universe, members).fingerprint()).second);
      EXPECT_FALSE(seen.insert(Make(universe, members).fingerprint()).second);
      if (members.empty()) continue;
      members.erase(members.begin() + 500);
      EXPECT_TRUE(seen.insert(Make(universe, members).fingerprint()).second);
    }
  }
  // Frozen, as positions hold it: every third of 200,000, every 1,000th, and all but one.
  std::vector<uint64_t> third;
  std::vector<uint64_t> rare;
  std::vector<uint64_t> most;
  for (uint64_t number = 0; number < 200'000; ++number) {
    if (number % 3 == 0) third.push_back(number);
    if (number % 1000 == 0) rare.push_back(number);
    if (number != 77) most.push_back(number);
  }
  EXPECT_EQ(Make(200'000, third).fingerprint(), 11734144635297661634u);
  EXPECT_EQ(Make(200'000, rare).fingerprint(), 11173192463052845015u);
  EXPECT_EQ(Make(200'000, most).fingerprint(), 7553094875327090106u);
}

TEST(Selection, TakesAboutABitANumberAtMost) {
  Rng rng(4);
  constexpr uint64_t kUniverse = 1'000'000;
  constexpr uint64_t kBitmap = 16 * (8192 + 256) + 1000;
  for (const uint64_t percent : {0u, 1u, 6u, 7u, 50u, 90u, 100u}) {
    const Selection selection = Make(kUniverse, Draw(kUniverse, {percent}, 1, rng));
    EXPECT_LT(selection.memory_bytes(), kBitmap) << percent;
    EXPECT_LT(selection.memory_bytes(), 2 * selection.size() + 1000 + kBitmap * (percent > 6)) << percent;
  }
}

}  // namespace
}  // namespace millrace
