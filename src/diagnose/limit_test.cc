#include "diagnose/limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

BenchSummary Waiting(StallCause cause, double busy_cpus) {
  BenchSummary sum;
  sum.seconds = 10;
  sum.stalls[static_cast<size_t>(cause)] = 9;
  sum.stalls[static_cast<size_t>(StallCause::kConnect)] += 1;
  sum.busy_cpus = {.median = busy_cpus, .least = busy_cpus, .most = busy_cpus};
  return sum;
}

TEST(Limit, EachCauseHasItsOwn) {
  EXPECT_EQ(FindLimit(Waiting(StallCause::kDecode, 7.8), 8, 8).by, LimitedBy::kCpu);
  EXPECT_EQ(FindLimit(Waiting(StallCause::kDecode, 2), 2, 8).by, LimitedBy::kThreads);
  EXPECT_EQ(FindLimit(Waiting(StallCause::kFirstByte, 1), 8, 8).by, LimitedBy::kLatency);
  EXPECT_EQ(FindLimit(Waiting(StallCause::kQueue, 1), 8, 8).by, LimitedBy::kLatency);
  EXPECT_EQ(FindLimit(Waiting(StallCause::kBody, 1), 8, 8).by, LimitedBy::kThroughput);
  EXPECT_EQ(FindLimit(Waiting(StallCause::kThrottling, 1), 8, 8).by, LimitedBy::kThrottling);
  EXPECT_EQ(FindLimit(Waiting(StallCause::kBudget, 1), 8, 8).by, LimitedBy::kMemory);
}

// Bytes come slowly, too, when the CPU has no time to receive them.
TEST(Limit, BusyCpusAreTheLimitOfTransfers) {
  EXPECT_EQ(FindLimit(Waiting(StallCause::kBody, 7.9), 8, 8).by, LimitedBy::kCpu);
}

TEST(Limit, SentenceHasTheNumbers) {
  const PipelineLimit limit = FindLimit(Waiting(StallCause::kDecode, 1.9), 2, 2);
  EXPECT_DOUBLE_EQ(limit.share, 0.9);
  EXPECT_THAT(limit.sentence, HasSubstr("The CPU limits"));
  EXPECT_THAT(limit.sentence, HasSubstr("1.9 of 2 CPUs"));
  EXPECT_THAT(limit.sentence, HasSubstr("90 %"));
}

// A thread more has no CPU to run on if other programs use them.
TEST(Limit, OtherProgramsAreNamed) {
  BenchSummary sum = Waiting(StallCause::kDecode, 1);
  sum.other_busy_cpus.median = 0.9;
  const PipelineLimit limit = FindLimit(sum, 1, 2);
  EXPECT_EQ(limit.by, LimitedBy::kCpu);
  EXPECT_THAT(limit.sentence, HasSubstr("1.0 of 2 CPUs were busy with it and 0.9 with other programs"));
}

TEST(Limit, WhoHardlyWaitsIsNotLimited) {
  BenchSummary sum = Waiting(StallCause::kDecode, 1);
  sum.seconds = 1000;
  EXPECT_EQ(FindLimit(sum, 2, 2).by, LimitedBy::kNothing);
  EXPECT_EQ(FindLimit({}, 2, 2).by, LimitedBy::kNothing);
}

}  // namespace
}  // namespace millrace
