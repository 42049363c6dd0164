#include "service/placement.h"

#include <gtest/gtest.h>

#include <map>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Placement::Time kNow{seconds(1000)};
const std::vector<std::string> kThree{"a:1", "b:1", "c:1"};

// Streams of each worker.
std::map<size_t, int> TakeAll(Placement& placement, size_t streams, Placement::Time now = kNow) {
  std::map<size_t, int> taken;
  for (size_t stream = 0; stream < streams; ++stream) {
    if (const std::optional<size_t> worker = placement.Take(stream, now)) ++taken[*worker];
  }
  return taken;
}

TEST(PlacementTest, SpreadsEvenlyAndDependsOnTheSeedOnly) {
  bool differs = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Placement first(kThree, 6, 6, seed);
    Placement second(kThree, 6, 6, seed);
    Placement other(kThree, 6, 6, seed + 1000);
    for (size_t stream = 0; stream < 6; ++stream) {
      const std::optional<size_t> worker = first.Take(stream, kNow);
      EXPECT_EQ(worker, second.Take(stream, kNow));
      differs |= worker != other.Take(stream, kNow);
    }
    for (const auto& [worker, streams] : TakeAll(first, 6)) EXPECT_EQ(streams, 2) << worker;
  }
  EXPECT_TRUE(differs);
}

TEST(PlacementTest, NobodyIsLeftOut) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Placement placement(kThree, 4, 4, seed);
    EXPECT_EQ(TakeAll(placement, 4).size(), 3u);
    for (size_t stream = 0; stream < 4; ++stream) EXPECT_FALSE(placement.ShouldMove(stream, kNow));
  }
}

// One by one, while any wants to: it ends, with equal shares.
TEST(PlacementTest, MovesEndWithEqualShares) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Placement placement(kThree, 16, 16, seed);
    placement.OnFailure(0, 0, StreamFailure::kLost, "gone", kNow);
    placement.OnFailure(1, 0, StreamFailure::kLost, "gone", kNow);
    EXPECT_EQ(TakeAll(placement, 16), (std::map<size_t, int>{{2, 16}}));
    for (const size_t worker : {0, 1}) {
      placement.OnPresent(worker);
      int moves = 0;
      for (size_t stream = 0, quiet = 0; quiet < 16; stream = (stream + 1) % 16) {
        ++quiet;
        if (!placement.ShouldMove(stream, kNow)) continue;
        ASSERT_TRUE(placement.Take(stream, kNow));
        ASSERT_LE(++moves, 16) << "streams go round in circles";
        quiet = 0;
      }
    }
    for (size_t stream = 0; stream < 16; ++stream) EXPECT_FALSE(placement.ShouldMove(stream, kNow));
  }
}

TEST(PlacementTest, ALostWorkerGetsNothingUntilItIsBack) {
  Placement placement(kThree, 6, 6, 1);
  TakeAll(placement, 6);
  EXPECT_TRUE(placement.OnFailure(1, 0, StreamFailure::kLost, "gone", kNow));
  EXPECT_FALSE(placement.OnFailure(1, 3, StreamFailure::kLost, "gone", kNow));
  EXPECT_EQ(TakeAll(placement, 6), (std::map<size_t, int>{{0, 3}, {2, 3}}));
  EXPECT_TRUE(placement.ToProbe(kNow).empty());
  EXPECT_EQ(placement.ToProbe(kNow + seconds(1)), std::vector<size_t>{1});
  EXPECT_TRUE(placement.ToProbe(kNow + seconds(1)).empty()) << "one probe at a time";
  placement.OnAbsent(1, kNow + seconds(1));
  EXPECT_TRUE(placement.ToProbe(kNow + milliseconds(1900)).empty()) << "pauses grow";
  EXPECT_EQ(placement.ToProbe(kNow + seconds(3)), std::vector<size_t>{1});
  EXPECT_FALSE(placement.ShouldMove(0, kNow + seconds(3)));
  placement.OnPresent(1);
  int moved = 0;
  for (size_t stream = 0; stream < 6; ++stream) {
    if (!placement.ShouldMove(stream, kNow + seconds(3))) continue;
    EXPECT_EQ(placement.Take(stream, kNow + seconds(3)), 1u);
    ++moved;
  }
  EXPECT_EQ(moved, 2);
  EXPECT_EQ(placement.report()[1].failures, 2u);
  EXPECT_EQ(placement.report()[1].last_failure, "gone");
}

TEST(PlacementTest, AStreamThatAWorkerCannotServeGoesElsewhere) {
  Placement placement({"a:1", "b:1"}, 2, 2, 1);
  placement.OnFailure(0, 0, StreamFailure::kStream, "full", kNow);
  EXPECT_EQ(placement.Take(0, kNow), 1u);
  placement.OnFailure(1, 0, StreamFailure::kStream, "full", kNow);
  EXPECT_EQ(placement.Take(0, kNow), std::nullopt);
  EXPECT_TRUE(placement.FirstTimeAlone());
  EXPECT_FALSE(placement.FirstTimeAlone());
  EXPECT_TRUE(placement.Take(1, kNow)) << "the other stream may have either";
  EXPECT_TRUE(placement.ToProbe(kNow + seconds(60)).empty()) << "nobody is absent";
  EXPECT_TRUE(placement.ShouldMove(0, kNow + seconds(60)));
}

TEST(PlacementTest, AWorkerThatRefusesIsLeftAlone) {
  Placement placement({"a:1"}, 4, 4, 1);
  placement.OnFailure(0, 2, StreamFailure::kRefused, "another version", kNow);
  for (size_t stream = 0; stream < 4; ++stream) EXPECT_EQ(placement.Take(stream, kNow + seconds(60)), std::nullopt);
  EXPECT_TRUE(placement.ToProbe(kNow + seconds(60)).empty());
  EXPECT_TRUE(placement.Take(0, kNow + std::chrono::minutes(10)));
}

TEST(PlacementTest, MembersComeAndGo) {
  Placement placement({"a:1"}, 8, 8, 1);
  EXPECT_EQ(TakeAll(placement, 8), (std::map<size_t, int>{{0, 8}}));
  placement.SetMembers({"b:1", "a:1"});
  EXPECT_EQ(placement.NameOf(1), "b:1");
  int moves = 0;
  for (size_t stream = 0; stream < 8; ++stream) {
    if (!placement.ShouldMove(stream, kNow)) continue;
    EXPECT_EQ(placement.Take(stream, kNow), std::optional<size_t>(1));
    ++moves;
  }
  EXPECT_EQ(moves, 4);
  placement.SetMembers({"b:1"});
  for (size_t stream = 0; stream < 8; ++stream) {
    if (placement.ShouldMove(stream, kNow)) {
      EXPECT_EQ(placement.Take(stream, kNow), std::optional<size_t>(1));
    }
    EXPECT_FALSE(placement.ShouldMove(stream, kNow));
  }
  placement.SetMembers({});
  EXPECT_FALSE(placement.ShouldMove(0, kNow)) << "there is no other one";
  EXPECT_EQ(placement.Take(0, kNow), std::nullopt);
  EXPECT_TRUE(placement.ToProbe(kNow + seconds(100)).empty());
  placement.SetMembers({"a:1"});
  EXPECT_EQ(placement.Take(0, kNow), std::optional<size_t>(0)) << "it keeps its number";
  EXPECT_EQ(placement.report().size(), 2u);
}

TEST(PlacementTest, OneThatComesBackIsAskedAtOnce) {
  Placement placement({"a:1"}, 2, 2, 1);
  placement.Take(0, kNow);
  placement.OnFailure(0, 0, StreamFailure::kRefused, "no", kNow);
  placement.OnFailure(0, 0, StreamFailure::kLost, "gone", kNow);
  EXPECT_EQ(placement.Take(0, kNow), std::nullopt);
  placement.SetMembers({});
  placement.SetMembers({"a:1"});
  EXPECT_EQ(placement.Take(0, kNow), std::optional<size_t>(0));
}

TEST(PlacementTest, ASecondWorkerForAStream) {
  Placement placement(kThree, 3, 3, 1);
  TakeAll(placement, 3);
  const size_t first = *placement.Take(0, kNow);
  const size_t second = *placement.Second(0, kNow);
  EXPECT_NE(first, second);
  placement.Exchange(0, second, "slow", kNow);
  EXPECT_EQ(placement.report()[first].failures, 1u);
  EXPECT_EQ(placement.report()[first].last_failure, "slow");
  EXPECT_NE(placement.Take(0, kNow), std::optional<size_t>(first)) << "not for a while";
  Placement alone({"a:1"}, 1, 1, 1);
  alone.Take(0, kNow);
  EXPECT_EQ(alone.Second(0, kNow), std::nullopt);
}

}  // namespace
}  // namespace millrace
