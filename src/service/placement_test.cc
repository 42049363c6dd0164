#include "service/placement.h"

#include <gtest/gtest.h>

#include <map>

#include "service/silence.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Placement::Time kNow{seconds(1000)};
const std::vector<std::string> kThree{"a:1", "b:1", "c:1"};

// Returns the streams of each worker.
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
    Placement first(kThree, 6, {}, seed);
    Placement second(kThree, 6, {}, seed);
    Placement other(kThree, 6, {}, seed + 1000);
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
    Placement placement(kThree, 4, {}, seed);
    EXPECT_EQ(TakeAll(placement, 4).size(), 3u);
    for (size_t stream = 0; stream < 4; ++stream) EXPECT_FALSE(placement.ShouldMove(stream, kNow));
  }
}

// The streams move one by one, while any wants to: it ends, with equal shares.
TEST(PlacementTest, MovesEndWithEqualShares) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Placement placement(kThree, 16, {}, seed);
    placement.OnFailure(0, 0, StreamFailure::kLost, "gone", kNow);
    placement.OnFailure(1, 0, StreamFailure::kLost, "gone", kNow);
    EXPECT_EQ(TakeAll(placement, 16), (std::map<size_t, int>{{2, 16}}));
    for (const size_t worker : {0, 1}) {
      placement.OnPresent(worker, kNow);
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

TEST(PlacementTest, FailuresThatTheUserShouldHearOf) {
  Placement placement(kThree, 6, {}, 1);
  TakeAll(placement, 6);
  EXPECT_TRUE(placement.OnFailure(0, 0, StreamFailure::kLost, "no connection", kNow));
  EXPECT_FALSE(placement.OnFailure(0, 1, StreamFailure::kLost, "no connection", kNow)) << "another stream of it";
  placement.OnBatch(SourceOfWorker(1), std::nullopt, false, kNow);
  EXPECT_FALSE(placement.OnFailure(1, 0, StreamFailure::kLost, "killed", kNow)) << "its address is right";
  EXPECT_FALSE(placement.OnFailure(2, 0, StreamFailure::kStream, "full", kNow));
  EXPECT_TRUE(placement.OnFailure(2, 0, StreamFailure::kRefused, "another version", kNow));
  EXPECT_FALSE(placement.OnFailure(2, 1, StreamFailure::kRefused, "another version", kNow));
}

TEST(PlacementTest, ALostWorkerGetsNothingUntilItIsBack) {
  Placement placement(kThree, 6, {}, 1);
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
  placement.OnPresent(1, kNow + seconds(3));
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
  Placement placement({"a:1", "b:1"}, 2, {}, 1);
  placement.OnFailure(0, 0, StreamFailure::kStream, "full", kNow);
  EXPECT_EQ(placement.Take(0, kNow), 1u);
  placement.OnFailure(1, 0, StreamFailure::kStream, "full", kNow);
  EXPECT_EQ(placement.Take(0, kNow), std::nullopt);
  EXPECT_TRUE(placement.FirstTimeAlone(0));
  EXPECT_FALSE(placement.FirstTimeAlone(0));
  EXPECT_TRUE(placement.Take(1, kNow)) << "the other stream may have either";
  EXPECT_TRUE(placement.ToProbe(kNow + seconds(60)).empty()) << "nobody is absent";
  EXPECT_TRUE(placement.ShouldMove(0, kNow + seconds(60)));
}

TEST(PlacementTest, AWorkerThatRefusesIsLeftAlone) {
  Placement placement({"a:1"}, 4, {}, 1);
  placement.OnFailure(0, 2, StreamFailure::kRefused, "another version", kNow);
  for (size_t stream = 0; stream < 4; ++stream) EXPECT_EQ(placement.Take(stream, kNow + seconds(60)), std::nullopt);
  EXPECT_TRUE(placement.ToProbe(kNow + seconds(60)).empty());
  EXPECT_TRUE(placement.Take(0, kNow + std::chrono::minutes(10)));
}

TEST(PlacementTest, MembersComeAndGo) {
  Placement placement({"a:1"}, 8, {}, 1);
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
  Placement placement({"a:1"}, 2, {}, 1);
  placement.Take(0, kNow);
  placement.OnFailure(0, 0, StreamFailure::kRefused, "no", kNow);
  placement.OnFailure(0, 0, StreamFailure::kLost, "gone", kNow);
  EXPECT_EQ(placement.Take(0, kNow), std::nullopt);
  placement.SetMembers({});
  placement.SetMembers({"a:1"});
  EXPECT_EQ(placement.Take(0, kNow), std::optional<size_t>(0));
}

// Reports batches from a source, each of which a stream waits for so long.
void Batches(Placement& placement, size_t source, milliseconds waited, int count = 20) {
  for (int i = 0; i < count; ++i) placement.OnBatch(source, waited, false, kNow);
}

// Moves streams one by one while any wants to.
int MoveAll(Placement& placement, size_t streams, Placement::Time now) {
  int moves = 0;
  for (size_t stream = 0, quiet = 0; quiet < streams; stream = (stream + 1) % streams) {
    ++quiet;
    if (!placement.ShouldMove(stream, now)) continue;
    placement.Take(stream, now);
    if (++moves > 100) {
      ADD_FAILURE() << "streams go round in circles";
      return moves;
    }
    quiet = 0;
  }
  return moves;
}

TEST(PlacementTest, AWorkerThatSaysNothingIsLost) {
  Placement placement({"a:1", "b:1"}, 2, {}, 1);
  EXPECT_FALSE(placement.IsLost(0, seconds(60), false, kNow)) << "it is not placed";
  const size_t own = *placement.Take(0, kNow);
  EXPECT_FALSE(placement.IsLost(0, milliseconds(900), false, kNow))
      << "a good one says within half a second that it is there";
  EXPECT_TRUE(placement.IsLost(0, milliseconds(1000), false, kNow));
  EXPECT_FALSE(placement.IsLost(0, milliseconds(1400), true, kNow)) << "another one is opening it";
  EXPECT_TRUE(placement.IsLost(0, milliseconds(1500), true, kNow)) << "and takes long for that";
  placement.OnFailure(1 - own, 0, StreamFailure::kLost, "gone", kNow);
  EXPECT_FALSE(placement.IsLost(0, milliseconds(1400), false, kNow)) << "there is no other one";
  EXPECT_TRUE(placement.IsLost(0, milliseconds(1500), false, kNow));
  Placement local({"a:1"}, 2, {.streams = 2}, 1);
  EXPECT_EQ(local.Take(0, kNow), std::nullopt);
  EXPECT_FALSE(local.IsLost(0, seconds(60), false, kNow));
}

// A program that waits for a worker which stands still continues within two seconds. This is the part of them that is
// left for opening the stream elsewhere, or here. Neither measurements of other workers nor hedges that were lost
// before change it.
TEST(PlacementTest, AWorkerThatStandsStillIsLeftInTime) {
  for (const bool has_other : {true, false}) {
    Placement placement(has_other ? std::vector<std::string>{"a:1", "b:1"} : std::vector<std::string>{"a:1"}, 1, {}, 1);
    const size_t own = *placement.Take(0, kNow);
    if (has_other) Batches(placement, SourceOfWorker(1 - own), seconds(3));
    for (int lost = 0; lost < 6; ++lost) placement.OnHedgeLost(0, kNow);
    Silence silence;
    const Placement::Time said = kNow - milliseconds(99);  // and the program waits from now on
    Placement::Time now = kNow;
    while (!placement.IsLost(0, silence.Look(said, now), false, now))
      now += milliseconds(100);  // as often as a stream looks
    EXPECT_LE(now - kNow, milliseconds(has_other ? 1000 : 1500));
    EXPECT_EQ(placement.Hedge(0, false, kNow, now), std::nullopt) << "this alone would take longer";
  }
}

TEST(PlacementTest, AnOvertakenWorkerThatDoesNotAnswerGetsNothingBack) {
  Placement placement({"a:1", "b:1"}, 2, {}, 1);
  const size_t first = *placement.Take(0, kNow);
  const size_t other = *placement.Take(1, kNow);
  ASSERT_NE(first, other);
  placement.OnHedgeWon(0, other, kNow);
  placement.OnNoAnswer(first, "it does not answer", kNow, kNow + seconds(2));
  placement.OnNoAnswer(first, "it does not answer", kNow, kNow + seconds(2));
  EXPECT_EQ(placement.report()[first].failures, 1u);
  EXPECT_EQ(placement.report()[first].last_failure, "it does not answer");
  EXPECT_EQ(MoveAll(placement, 2, kNow + std::chrono::hours(1)), 0) << "not before it answers";
  EXPECT_EQ(placement.ToProbe(kNow + std::chrono::hours(1)), std::vector<size_t>{first});
  placement.OnPresent(first, kNow + std::chrono::hours(1));
  EXPECT_EQ(MoveAll(placement, 2, kNow + std::chrono::hours(1)), 1);
}

// It was asked to close a session, and was killed; it is back before the trainer gives up waiting for that.
TEST(PlacementTest, WhatAWorkerOwesFromBeforeDoesNotCountWhenItIsBack) {
  Placement placement({"a:1", "b:1"}, 2, {}, 1);
  const size_t first = *placement.Take(0, kNow);
  placement.OnFailure(first, 0, StreamFailure::kLost, "gone", kNow);
  placement.OnPresent(first, kNow + seconds(1));
  placement.OnNoAnswer(first, "it does not answer", kNow, kNow + seconds(2));
  EXPECT_EQ(placement.report()[first].failures, 1u);
  EXPECT_TRUE(placement.ToProbe(kNow + std::chrono::hours(1)).empty()) << "it is present";
  // A batch shows the same.
  placement.OnBatch(SourceOfWorker(first), std::nullopt, true, kNow + seconds(4));
  placement.OnNoAnswer(first, "it does not answer", kNow + seconds(3), kNow + seconds(5));
  EXPECT_EQ(placement.report()[first].failures, 1u);
  placement.OnNoAnswer(first, "it does not answer", kNow + seconds(5), kNow + seconds(7));
  EXPECT_EQ(placement.report()[first].failures, 2u);
  EXPECT_EQ(placement.ToProbe(kNow + std::chrono::hours(1)), std::vector<size_t>{first});
}

TEST(PlacementTest, ALateStreamIsReadFromTwoWorkers) {
  Placement placement(kThree, 3, {}, 1);
  TakeAll(placement, 3);
  const size_t first = *placement.Take(0, kNow);
  for (size_t worker = 0; worker < 3; ++worker) Batches(placement, SourceOfWorker(worker), milliseconds(10));
  EXPECT_EQ(placement.Hedge(0, false, kNow, kNow + milliseconds(400)), std::nullopt) << "it is not late";
  const std::optional<size_t> second = placement.Hedge(0, false, kNow, kNow + milliseconds(500));
  ASSERT_TRUE(second);
  EXPECT_NE(first, *second);
  EXPECT_EQ(placement.Hedge(1, false, kNow, kNow + seconds(100)), std::nullopt) << "one stream at a time";
  placement.OnHedgeWon(0, *second, kNow + seconds(1));
  EXPECT_EQ(placement.report()[first].last_failure, "another worker was faster with a late batch");
  EXPECT_EQ(placement.report()[first].failures, 0u) << "it does not fail, it is slow";
  EXPECT_EQ(MoveAll(placement, 3, kNow + seconds(1)), 0) << "not for a while";
  ASSERT_TRUE(placement.Hedge(1, false, kNow, kNow + seconds(100)));
  placement.OnHedgeLost(1, kNow + seconds(100));
  EXPECT_EQ(placement.Hedge(1, false, kNow + seconds(100), kNow + milliseconds(100'600)), std::nullopt)
      << "it did not help the last time";
  ASSERT_TRUE(placement.Hedge(1, false, kNow + seconds(100), kNow + seconds(101)));
  placement.OnHedgeOver();
  Placement alone({"a:1"}, 1, {}, 1);
  alone.Take(0, kNow);
  EXPECT_EQ(alone.Hedge(0, false, kNow, kNow + seconds(100)), std::nullopt);
}

TEST(PlacementTest, AStreamStaysWithItsSecondWorkerWhenTheFirstOneIsLost) {
  Placement placement({"a:1", "b:1"}, 2, {}, 1);
  TakeAll(placement, 2);
  const size_t first = *placement.Take(0, kNow);
  const Placement::Time late = kNow + seconds(2);
  const std::optional<size_t> second = placement.Hedge(0, false, kNow, late);
  ASSERT_TRUE(second);
  placement.OnHedgeStays(0, *second, late);
  placement.OnFailure(first, 0, StreamFailure::kLost, "gone", late);
  EXPECT_FALSE(placement.IsLost(0, milliseconds(1400), false, late)) << "it is read from the only worker that is left";
  EXPECT_EQ(MoveAll(placement, 2, late), 0);
  placement.OnPresent(first, late + seconds(1));
  EXPECT_EQ(MoveAll(placement, 2, late + seconds(1)), 1) << "it has its share again";
  EXPECT_TRUE(placement.Hedge(1, false, late, late + seconds(100))) << "another stream may be read twice now";
}

TEST(PlacementTest, IfAllAreSlowNoStreamIsLate) {
  Placement placement(kThree, 3, {}, 1);
  TakeAll(placement, 3);
  for (size_t worker = 0; worker < 3; ++worker) Batches(placement, SourceOfWorker(worker), seconds(3));
  EXPECT_EQ(placement.Hedge(0, false, kNow, kNow + seconds(11)), std::nullopt);
  EXPECT_TRUE(placement.Hedge(0, false, kNow, kNow + seconds(13)));
}

// One stream was hedged: it must not be replaced by another one, nor the others wait until each was hedged.
TEST(PlacementTest, AStragglerGetsNoOtherStreamInstead) {
  Placement placement({"a:1", "b:1"}, 8, {}, 1);
  TakeAll(placement, 8);
  std::vector<size_t> of_slow;
  for (size_t stream = 0; stream < 8; ++stream) {
    if (*placement.Take(stream, kNow) == 0) of_slow.push_back(stream);
  }
  ASSERT_EQ(of_slow.size(), 4u);
  const Placement::Time late = kNow + seconds(1);
  ASSERT_EQ(placement.Hedge(of_slow[0], false, kNow, late), std::optional<size_t>(1));
  EXPECT_FALSE(placement.ShouldLeave(of_slow[1], kNow, late)) << "nobody was faster yet";
  placement.OnHedgeWon(of_slow[0], 1, late);
  EXPECT_EQ(MoveAll(placement, 8, late), 0);
  EXPECT_FALSE(placement.ShouldLeave(of_slow[1], late + milliseconds(1), late + milliseconds(1))) << "another batch";
  for (const size_t stream : {of_slow[1], of_slow[2]}) {
    ASSERT_TRUE(placement.ShouldLeave(stream, kNow, late));
    EXPECT_EQ(placement.Take(stream, late), std::optional<size_t>(1));
  }
  EXPECT_EQ(MoveAll(placement, 8, late), 0) << "one is left, which has not been waited for";
  // It is tried again, and after that not so soon.
  EXPECT_EQ(MoveAll(placement, 8, late + seconds(2)), 3);
  const Placement::Time again = late + seconds(3);
  ASSERT_TRUE(placement.Hedge(of_slow[3], false, again - seconds(1), again));
  placement.OnHedgeWon(of_slow[3], 1, again);
  EXPECT_EQ(MoveAll(placement, 8, again + seconds(2)), 0);
  EXPECT_EQ(MoveAll(placement, 8, again + seconds(4)), 1);
}

// Its share may be such that a stream that leaves a straggler begins again there: once, not again and again.
TEST(PlacementTest, AStreamDoesNotLeaveForWhatWasKnownWhenItCame) {
  Placement placement({"a:1", "b:1"}, 8, {}, 1);
  TakeAll(placement, 8);
  std::vector<size_t> of_slow;
  for (size_t stream = 0; stream < 8; ++stream) {
    if (*placement.Take(stream, kNow) == 0) of_slow.push_back(stream);
  }
  ASSERT_EQ(of_slow.size(), 4u);
  const Placement::Time late = kNow + seconds(1);
  placement.OnHedgeWon(of_slow[0], 1, late);
  EXPECT_EQ(placement.Take(of_slow[1], late + milliseconds(1)), std::optional<size_t>(0));
  EXPECT_FALSE(placement.ShouldLeave(of_slow[1], kNow, late + milliseconds(2)));
  EXPECT_TRUE(placement.ShouldLeave(of_slow[2], kNow, late + milliseconds(2)));
}

TEST(PlacementTest, ASlowWorkerHasFewerStreams) {
  Placement placement({"a:1", "b:1"}, 8, {}, 1);
  TakeAll(placement, 8);
  Batches(placement, SourceOfWorker(0), milliseconds(300));
  Batches(placement, SourceOfWorker(1), milliseconds(50));
  EXPECT_EQ(MoveAll(placement, 8, kNow), 0) << "the program does not wait for it";
  placement.OnAwaited(SourceOfWorker(0), kNow);
  placement.OnAwaited(std::nullopt, kNow + milliseconds(1500));
  const Placement::Time now = kNow + milliseconds(1500);
  EXPECT_EQ(MoveAll(placement, 8, now), 1) << "one, after which all is measured again";
  EXPECT_EQ(placement.report()[0].last_failure, "other workers are faster: it has fewer streams for a while");
  EXPECT_EQ(placement.report()[0].failures, 0u);
  EXPECT_EQ(MoveAll(placement, 8, now + seconds(2)), 1) << "its share again";
}

TEST(PlacementTest, IfAllAreStragglersNoneIs) {
  Placement placement({"a:1", "b:1"}, 2, {}, 1);
  TakeAll(placement, 2);
  const size_t first = *placement.Take(0, kNow);
  placement.OnHedgeWon(0, 1 - first, kNow);
  placement.OnHedgeWon(0, first, kNow);
  EXPECT_TRUE(placement.Take(0, kNow));
  EXPECT_TRUE(placement.Take(1, kNow));
  EXPECT_NE(placement.Take(0, kNow), placement.Take(1, kNow));
}

TEST(PlacementTest, SomeStreamsAreLocal) {
  Placement placement({"a:1"}, 4, {.streams = 1}, 1);
  EXPECT_EQ(placement.Take(0, kNow), std::nullopt);
  EXPECT_FALSE(placement.FirstTimeAlone(0)) << "it is not for workers";
  for (size_t stream = 1; stream < 4; ++stream) EXPECT_TRUE(placement.Take(stream, kNow));
  placement.OnAwaited(kLocalSource, kNow);
  Batches(placement, kLocalSource, seconds(1));
  EXPECT_EQ(MoveAll(placement, 4, kNow + seconds(10)), 0) << "as the program said";
}

TEST(PlacementTest, LocalStreamsFollowWhatTheProgramWaitsFor) {
  Placement placement({"a:1"}, 4, {.streams = 4, .follows = true}, 1);
  EXPECT_TRUE(TakeAll(placement, 4).empty()) << "first the CPUs of this machine";
  Placement::Time now = kNow;
  const auto waits = [&](size_t source) {
    Batches(placement, kLocalSource, source == kLocalSource ? milliseconds(200) : milliseconds(10));
    Batches(placement, SourceOfWorker(0), source == kLocalSource ? milliseconds(10) : milliseconds(200));
    placement.OnAwaited(source, now);
    now += seconds(2);
    placement.OnAwaited(std::nullopt, now);
    return MoveAll(placement, 4, now);
  };
  EXPECT_EQ(MoveAll(placement, 4, now), 0) << "the program does not wait";
  EXPECT_EQ(waits(kLocalSource), 1);
  EXPECT_EQ(waits(kLocalSource), 1);
  EXPECT_EQ(placement.Take(0, now), std::nullopt);
  EXPECT_EQ(placement.Take(3, now), std::optional<size_t>(0));
  for (int i = 0; i < 10; ++i) waits(SourceOfWorker(0));
  for (size_t stream = 0; stream < 4; ++stream) EXPECT_EQ(placement.Take(stream, now), std::nullopt) << stream;
}

TEST(PlacementTest, WithoutWorkersAllStreamsStayLocal) {
  Placement placement({"a:1"}, 4, {.streams = 4, .follows = true}, 1);
  TakeAll(placement, 4);
  placement.OnFailure(0, 0, StreamFailure::kLost, "gone", kNow);
  Batches(placement, kLocalSource, milliseconds(200));
  placement.OnAwaited(kLocalSource, kNow);
  EXPECT_EQ(MoveAll(placement, 4, kNow + seconds(5)), 0);
}

}  // namespace
}  // namespace millrace
