#include "service/worker_paces.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const WorkerPaces::Time kPacesBegin{seconds(1000)};

// Reports batches of a source, each of which is waited for so long.
void Batches(WorkerPaces& paces, size_t source, milliseconds waited, int count = 20) {
  for (int i = 0; i < count; ++i) paces.OnBatch(source, waited, false);
}

double Milliseconds(std::optional<WorkerPaces::Duration> duration) {
  return std::chrono::duration<double, std::milli>(duration.value()).count();
}

// The program waits for `source` alone for `awaited` in the `elapsed` before `now`.
void Awaited(WorkerPaces& paces, size_t source, milliseconds awaited, milliseconds elapsed, WorkerPaces::Time now) {
  paces.OnAwaited(source, now - elapsed);
  paces.OnAwaited(std::nullopt, now - elapsed + awaited);
}

TEST(WorkerPacesTest, ABatchIsLateIfAnotherWorkerWouldHaveSentItLongAgo) {
  WorkerPaces paces;
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), seconds(1)) << "nothing is known of the other one";
  Batches(paces, 2, milliseconds(10));
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), milliseconds(500))
      << "a pause of the machine is no straggler";
  Batches(paces, 2, seconds(2));
  EXPECT_GT(paces.HedgeDelay(1, 2, false, false, kPacesBegin), seconds(6)) << "where all need long, long is not late";
}

TEST(WorkerPacesTest, AWorkerThatIsNeverWaitedForIsFast) {
  WorkerPaces paces;
  for (int i = 0; i < 20; ++i) paces.OnBatch(2, std::nullopt, false);
  EXPECT_EQ(paces.PaceOf(2), std::nullopt);
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), milliseconds(500));
}

TEST(WorkerPacesTest, TheFirstBatchOfASessionMayTakeLonger) {
  WorkerPaces paces;
  Batches(paces, 2, milliseconds(10));
  EXPECT_EQ(paces.HedgeDelay(1, 2, true, false, kPacesBegin), milliseconds(1500));
  EXPECT_EQ(paces.HedgeDelay(1, 2, true, true, kPacesBegin), milliseconds(500)) << "not if it was slow before";
  paces.OnBatch(2, seconds(3), true);
  EXPECT_EQ(paces.HedgeDelay(1, 2, true, false, kPacesBegin), seconds(12));
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), milliseconds(500))
      << "the other ones take as long as they did";
}

TEST(WorkerPacesTest, HedgesWithoutUseBecomeRare) {
  WorkerPaces paces;
  Batches(paces, 2, milliseconds(10));
  paces.OnHedgeLost(1, kPacesBegin);
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), seconds(1));
  paces.OnHedgeLost(1, kPacesBegin);
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), seconds(2));
  EXPECT_EQ(paces.HedgeDelay(2, 1, false, false, kPacesBegin), seconds(1))
      << "of the other worker's batches nothing is known";
  for (int i = 0; i < 100; ++i) paces.OnHedgeLost(1, kPacesBegin);
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), seconds(32));
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin + seconds(60)), milliseconds(500)) << "that is long ago";
  paces.OnHedgeWon(1);
  EXPECT_EQ(paces.HedgeDelay(1, 2, false, false, kPacesBegin), milliseconds(500));
}

TEST(WorkerPacesTest, ASlowSourceGivesAStreamToAFasterOne) {
  WorkerPaces paces;
  Batches(paces, 1, milliseconds(200));
  Batches(paces, 2, milliseconds(50));
  EXPECT_FALSE(paces.ShouldGive(1, 4, 2, 4, kPacesBegin)) << "the program does not wait for it";
  Awaited(paces, 1, milliseconds(900), seconds(2), kPacesBegin);
  EXPECT_TRUE(paces.ShouldGive(1, 4, 2, 4, kPacesBegin));
  EXPECT_FALSE(paces.ShouldGive(2, 4, 1, 4, kPacesBegin));
  EXPECT_FALSE(paces.ShouldGive(1, 4, 3, 4, kPacesBegin)) << "nothing is known of that one";
}

TEST(WorkerPacesTest, IfAllAreEquallySlowNothingMoves) {
  WorkerPaces paces;
  Batches(paces, 1, seconds(2));
  Batches(paces, 2, milliseconds(1500));
  Awaited(paces, 1, milliseconds(1900), seconds(2), kPacesBegin);
  EXPECT_FALSE(paces.ShouldGive(1, 4, 2, 4, kPacesBegin));
}

TEST(WorkerPacesTest, ASmallShareOfTheTimeIsNotWorthIt) {
  WorkerPaces paces;
  Batches(paces, 1, milliseconds(200));
  Batches(paces, 2, milliseconds(10));
  Awaited(paces, 1, milliseconds(300), seconds(2), kPacesBegin);
  EXPECT_FALSE(paces.ShouldGive(1, 4, 2, 4, kPacesBegin));
  WorkerPaces soon;
  Batches(soon, 1, milliseconds(200));
  Batches(soon, 2, milliseconds(10));
  Awaited(soon, 1, milliseconds(900), milliseconds(900), kPacesBegin);
  EXPECT_FALSE(soon.ShouldGive(1, 4, 2, 4, kPacesBegin)) << "not after so short a time";
}

// A source that was good for hours is seen to be slow within seconds.
TEST(WorkerPacesTest, WhatWasLongAgoCountsLittle) {
  WorkerPaces paces;
  Batches(paces, 1, milliseconds(200));
  Batches(paces, 2, milliseconds(10));
  Awaited(paces, 1, milliseconds(1), seconds(2), kPacesBegin);
  const WorkerPaces::Time later = kPacesBegin + std::chrono::hours(5);
  EXPECT_FALSE(paces.ShouldGive(1, 4, 2, 4, later));
  Awaited(paces, 1, seconds(4), seconds(4), later);
  EXPECT_TRUE(paces.ShouldGive(1, 4, 2, 4, later));
}

TEST(WorkerPacesTest, AfterAMoveItIsMeasuredAgain) {
  WorkerPaces paces;
  Batches(paces, 1, milliseconds(400));
  Batches(paces, 2, milliseconds(40));
  Awaited(paces, 1, seconds(2), seconds(2), kPacesBegin);
  ASSERT_TRUE(paces.ShouldGive(1, 4, 2, 4, kPacesBegin));
  paces.OnStreams(1, 3, -1, kPacesBegin);
  paces.OnStreams(2, 5, 1, kPacesBegin);
  EXPECT_NEAR(Milliseconds(paces.PaceOf(1)), 300, 0.1) << "it has less to do";
  EXPECT_NEAR(Milliseconds(paces.PaceOf(2)), 50, 0.1);
  EXPECT_FALSE(paces.ShouldGive(1, 3, 2, 5, kPacesBegin + seconds(2)));
  Batches(paces, 1, milliseconds(300));
  Batches(paces, 2, milliseconds(50));
  Awaited(paces, 1, seconds(2), seconds(2), kPacesBegin + seconds(2));
  EXPECT_TRUE(paces.ShouldGive(1, 3, 2, 5, kPacesBegin + seconds(2)));
}

// Two sources of any speeds: streams go one way until they are spread well, never back and forth.
TEST(WorkerPacesTest, MovesEnd) {
  for (const double faster : {1.0, 1.3, 2.0, 5.0, 50.0}) {
    WorkerPaces paces;
    size_t slow = 8;
    size_t fast = 8;
    int moves = 0;
    WorkerPaces::Time now = kPacesBegin;
    for (int round = 0; round < 100; ++round) {
      const auto of_slow = milliseconds(static_cast<int64_t>(100 * slow));
      const auto of_fast = milliseconds(static_cast<int64_t>(100.0 * static_cast<double>(fast) / faster));
      // The one that is ahead is not waited for, once it is.
      Batches(paces, 1, of_slow);
      Batches(paces, 2, of_fast);
      now += seconds(20);
      const size_t awaited = of_slow > of_fast ? 1 : 2;
      Awaited(paces, awaited, seconds(4), seconds(4), now);
      if (slow > 0 && paces.ShouldGive(1, slow, 2, fast, now)) {
        paces.OnStreams(1, --slow, -1, now);
        paces.OnStreams(2, ++fast, 1, now);
        ++moves;
      } else if (paces.ShouldGive(2, fast, 1, slow, now)) {
        ADD_FAILURE() << "a stream goes back, " << faster;
      }
    }
    EXPECT_EQ(moves, static_cast<int>(8 - slow));
    EXPECT_EQ(moves > 0, faster >= 2) << faster;
  }
}

}  // namespace
}  // namespace millrace
