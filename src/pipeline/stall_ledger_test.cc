#include "pipeline/stall_ledger.h"

#include <gtest/gtest.h>

#include <numeric>

namespace millrace {
namespace {

using std::chrono::milliseconds;

StallLedger::Time AtMs(int ms) {
  return StallLedger::Time(milliseconds(ms));
}

TEST(StallLedger, CausesSumToTheWait) {
  StallLedger ledger;
  ledger.Begin(AtMs(0));
  ledger.Charge(StallCause::kFirstByte, AtMs(30));
  ledger.Charge(StallCause::kDecode, AtMs(40));
  ledger.End(AtMs(40));
  ledger.Begin(AtMs(100));  // 60 ms of the consumer's own
  ledger.Charge(StallCause::kFirstByte, AtMs(105));
  ledger.End(AtMs(105));
  const StallReport report = ledger.report();
  EXPECT_DOUBLE_EQ(report.seconds[static_cast<size_t>(StallCause::kFirstByte)], 0.035);
  EXPECT_DOUBLE_EQ(report.seconds[static_cast<size_t>(StallCause::kDecode)], 0.010);
  EXPECT_DOUBLE_EQ(report.waited(), 0.045);
  EXPECT_DOUBLE_EQ(report.elapsed, 0.105);
  EXPECT_EQ(report.bottleneck(), "first_byte");
}

TEST(StallLedger, AConsumerThatHardlyWaitsIsTheBottleneck) {
  StallLedger ledger;
  ledger.Begin(AtMs(0));
  ledger.Charge(StallCause::kDecode, AtMs(4));
  ledger.Begin(AtMs(100));
  ledger.End(AtMs(100));
  EXPECT_EQ(ledger.report().bottleneck(), "consumer");
}

TEST(StallLedger, AConsumerThatWaitsForATwentiethOfTheTimeIsNotTheLimit) {
  EXPECT_FALSE(ConsumerLimits(5, 100));
  EXPECT_TRUE(ConsumerLimits(4.9, 100));
  EXPECT_TRUE(ConsumerLimits(0, 0));
  EXPECT_FALSE(ConsumerLimits(1, 0));
}

TEST(StallLedger, EveryPhaseHasACauseAndEveryCauseAName) {
  EXPECT_EQ(CauseOf(RequestPhase::kConnect), StallCause::kConnect);
  EXPECT_EQ(CauseOf(RequestPhase::kThrottled), StallCause::kThrottling);
  EXPECT_EQ(CauseOf(RequestPhase::kDone), StallCause::kDecode);
  for (size_t i = 0; i < kStallCauses; ++i) EXPECT_FALSE(StallCauseName(static_cast<StallCause>(i)).empty());
}

TEST(StallLedger, NothingWaitedIsNothing) {
  EXPECT_EQ(StallLedger().report().waited(), 0.0);
  EXPECT_EQ(StallLedger().report().elapsed, 0.0);
}

}  // namespace
}  // namespace millrace
