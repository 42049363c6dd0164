#include "base/backoff.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

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

}  // namespace
}  // namespace millrace
