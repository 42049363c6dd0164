#include "s3/retry.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

const absl::Time kRetryStart = absl::FromUnixSeconds(1'700'000'000);

TEST(Backoff, IsSpreadOverAWindowThatDoubles) {
  for (int failures = 1; failures <= 40; ++failures) {
    const absl::Duration limit =
        std::min(absl::Seconds(20), absl::Milliseconds(100) * (int64_t{1} << std::min(failures - 1, 20)));
    absl::Duration sum;
    absl::Duration least = absl::InfiniteDuration();
    absl::Duration most;
    constexpr int kDraws = 2000;
    for (uint64_t key = 0; key < kDraws; ++key) {
      const absl::Duration wait = Backoff(failures, key);
      ASSERT_GE(wait, absl::ZeroDuration());
      ASSERT_LT(wait, limit);
      sum += wait;
      least = std::min(least, wait);
      most = std::max(most, wait);
    }
    // Full jitter: the mean is half of the window, and its ends are reached.
    EXPECT_NEAR(absl::FDivDuration(sum, limit * kDraws), 0.5, 0.03) << failures;
    EXPECT_LT(absl::FDivDuration(least, limit), 0.01);
    EXPECT_GT(absl::FDivDuration(most, limit), 0.99);
  }
}

TEST(Backoff, IsAFunctionOfItsKey) {
  EXPECT_EQ(Backoff(3, 42), Backoff(3, 42));
  EXPECT_NE(Backoff(3, 42), Backoff(3, 43));
}

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
