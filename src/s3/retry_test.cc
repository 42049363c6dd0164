#include "s3/retry.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

const absl::Time kRetryStart = absl::FromUnixSeconds(1'700'000'000);

TEST(RetryAfter, SecondsAndDates) {
  EXPECT_EQ(ParseRetryAfter("0", kRetryStart), absl::ZeroDuration());
  EXPECT_EQ(ParseRetryAfter("7", kRetryStart), absl::Seconds(7));
  EXPECT_EQ(ParseRetryAfter("86400", kRetryStart), kMaxRetryAfter);
  EXPECT_EQ(ParseRetryAfter("Tue, 14 Nov 2023 22:13:25 GMT", kRetryStart), absl::Seconds(5));
  EXPECT_EQ(ParseRetryAfter("Tue, 14 Nov 2023 22:00:00 GMT", kRetryStart), absl::ZeroDuration());
  for (const char* text : {"", "-1", "1.5", "soon", "7 s", "99999999999"})
    EXPECT_EQ(ParseRetryAfter(text, kRetryStart), std::nullopt) << text;
}

TEST(RetryBudget, ABurstIsFreeThenRetriesArePaced) {
  RetryBudget budget;
  for (int i = 0; i < RetryBudget::kCapacity; ++i) ASSERT_EQ(budget.Spend(kRetryStart), absl::ZeroDuration());
  for (int i = 1; i <= 100; ++i) {
    ASSERT_NEAR(absl::ToDoubleSeconds(budget.Spend(kRetryStart)), i / RetryBudget::kPerSecond, 1e-6);
  }
}

TEST(RetryBudget, TimeAndSuccessesFillIt) {
  RetryBudget budget;
  while (budget.Spend(kRetryStart) == absl::ZeroDuration()) {
  }
  EXPECT_EQ(budget.Spend(kRetryStart + absl::Seconds(1)), absl::ZeroDuration());
  while (budget.Spend(kRetryStart + absl::Seconds(1)) == absl::ZeroDuration()) {
  }
  for (int i = 0; i < 4; ++i) budget.OnSuccess();
  EXPECT_EQ(budget.Spend(kRetryStart + absl::Seconds(1)), absl::ZeroDuration());
}

TEST(RetryBudget, AStormOfThirtyPercentIsHardlySlowed) {
  // 3 retries for 7 successes: successes alone pay for them.
  RetryBudget budget;
  for (int round = 0; round < 10'000; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(budget.Spend(kRetryStart), absl::ZeroDuration());
    for (int i = 0; i < 7; ++i) budget.OnSuccess();
  }
}

TEST(RetryBudget, NeverHoldsMoreThanItsCapacityAndBearsAClockThatGoesBack) {
  RetryBudget budget;
  for (int i = 0; i < 10'000; ++i) budget.OnSuccess();
  int free = 0;
  while (budget.Spend(kRetryStart) == absl::ZeroDuration()) ++free;
  EXPECT_EQ(free, RetryBudget::kCapacity);
  EXPECT_GT(budget.Spend(kRetryStart - absl::Hours(1)), absl::ZeroDuration());
  // An hour that was counted once is not counted again.
  EXPECT_GT(budget.Spend(kRetryStart), absl::ZeroDuration());
}

}  // namespace
}  // namespace millrace
