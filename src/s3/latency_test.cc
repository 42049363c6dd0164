#include "s3/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

double Millis(absl::Duration duration) {
  return absl::ToDoubleMilliseconds(duration);
}

TEST(Durations, QuantilesAreThoseOfTheDistribution) {
  Durations durations;
  Rng rng(1);
  for (int i = 0; i < 1999; ++i) durations.Add(absl::Milliseconds(10 + 90 * rng.Unit()));
  for (const double part : {0.1, 0.5, 0.9, 0.99}) {
    EXPECT_NEAR(Millis(durations.Quantile(part)), 10 + 90 * part, 0.1 * (10 + 90 * part)) << part;
  }
}

TEST(Durations, FewSayNothing) {
  Durations durations;
  for (int i = 0; i < 99; ++i) durations.Add(absl::Milliseconds(5));
  EXPECT_EQ(durations.Quantile(0.5), absl::ZeroDuration());
  durations.Add(absl::Milliseconds(5));
  EXPECT_NEAR(Millis(durations.Quantile(0.5)), 5, 0.5);
}

TEST(Durations, WhatWasLongAgoIsForgotten) {
  Durations durations;
  for (int i = 0; i < 5000; ++i) durations.Add(absl::Milliseconds(5));
  for (int i = 0; i < 5000; ++i) durations.Add(absl::Milliseconds(50));
  EXPECT_NEAR(Millis(durations.Quantile(0.2)), 50, 5);
}

TEST(Durations, ExtremesStayWithin) {
  Durations durations;
  for (int i = 0; i < 200; ++i) durations.Add(i % 2 == 0 ? absl::ZeroDuration() : absl::Hours(1000));
  EXPECT_LT(Millis(durations.Quantile(0.1)), 0.2);
  EXPECT_GT(durations.Quantile(0.9), absl::Minutes(30));
}

// Simulates first bytes as S3's are, of which `stalled` never come, and what a second request would find.
struct Simulated {
  Hedging hedging;
  int second = 0;          // requests
  double overhead_ms = 0;  // of a second request, which needs a connection
  std::vector<double> ms;

  void Run(int requests, double stalled) {
    second = 0;
    ms.clear();
    Rng rng(7);
    const auto draw = [&] {
      if (rng.Unit() < stalled) return 5000.0;
      const double normal = std::sqrt(-2 * std::log(1 - rng.Unit())) * std::cos(2 * M_PI * rng.Unit());
      return 30 * std::exp(0.3 * normal);
    };
    for (int i = 0; i < requests; ++i) {
      const double first = draw();
      const double delay = Millis(hedging.Delay());
      double answered = first;
      double took = first;  // the one that answered
      if (first > delay && hedging.Take()) {
        ++second;
        const double other = overhead_ms + draw();
        if (delay + other < first) {
          hedging.OnLost();
          answered = delay + other;
          took = other;
        }
      }
      hedging.OnFirstByte(absl::Milliseconds(took));
      ms.push_back(answered);
    }
    std::sort(ms.begin(), ms.end());
  }
  double Quantile(double part) const { return ms[static_cast<size_t>(part * static_cast<double>(ms.size() - 1))]; }
};

TEST(Hedging, AsksAgainForFewWhereFewAreLate) {
  Simulated store;
  store.Run(50'000, 0);
  EXPECT_LT(store.second, 250) << "of 50,000";
  EXPECT_LT(store.Quantile(0.999), 3 * store.Quantile(0.5));
}

TEST(Hedging, KeepsTheTailShortWhereSomeStall) {
  Simulated store;
  store.overhead_ms = 3;
  store.Run(2'000, 0.01);
  store.Run(50'000, 0.01);
  EXPECT_LT(store.Quantile(0.999), 3 * store.Quantile(0.5));
  EXPECT_LT(store.second, 50'000 / 5);

  store.Run(20'000, 0);  // the stalls end
  store.Run(20'000, 0);
  EXPECT_LT(store.second, 200) << "of 20,000";
}

// The load makes first bytes late here, so that a second request is later still.
TEST(Hedging, AsksAgainForFewWhereThatDoesNotHelp) {
  Hedging hedging;
  Rng rng(7);
  int second = 0;
  constexpr int kRequests = 50'000;
  for (int i = 0; i < kRequests; ++i) {
    const absl::Duration first = absl::Milliseconds(rng.Unit() < 0.1 ? 200 : 10);
    if (first > hedging.Delay() && hedging.Take()) ++second;
    hedging.OnFirstByte(first);
  }
  EXPECT_GT(second, kRequests / 250) << "no second request finds out when the load has gone";
  EXPECT_LT(second, kRequests / 150);
}

TEST(Hedging, StopsWhenItCostsTooMuchAndGoesOnLater) {
  Hedging hedging;
  for (int i = 0; i < 200; ++i) hedging.OnFirstByte(absl::Milliseconds(10));
  uint64_t read = 0;
  uint64_t wasted = 0;
  for (int i = 0; i < 10'000; ++i) {  // each second request costs its whole body
    hedging.OnBody(100'000, absl::Milliseconds(1));
    read += 100'000;
    if (hedging.Delay() == absl::InfiniteDuration()) continue;
    hedging.OnWasted(100'000);
    wasted += 100'000;
  }
  EXPECT_GT(wasted, read / 50);
  EXPECT_LE(wasted, read * 3 / 100 + (5 << 20));
}

TEST(Hedging, GivesUpWhatIsFarSlowerThanUsual) {
  Hedging hedging;
  EXPECT_TRUE(hedging.GiveUp(1000));  // nothing is known yet: a trickle
  EXPECT_FALSE(hedging.GiveUp(5000));
  for (int i = 0; i < 200; ++i) hedging.OnBody(1 << 20, absl::Milliseconds(100));  // 10 MiB a second
  EXPECT_TRUE(hedging.GiveUp(50'000));
  EXPECT_FALSE(hedging.GiveUp(100'000));
}

TEST(Hedging, GivesNothingUpInASlowNetwork) {
  Hedging hedging;
  for (int i = 0; i < 200; ++i) hedging.OnBody(64 << 10, absl::Seconds(60));  // 1 KiB a second
  EXPECT_FALSE(hedging.GiveUp(500));
  EXPECT_TRUE(hedging.GiveUp(5));

  Hedging fresh;  // nothing known, and everything trickles: a few are given up, then no more
  int given_up = 0;
  for (int i = 0; i < 1000; ++i) given_up += fresh.GiveUp(1000) ? 1 : 0;
  EXPECT_EQ(given_up, 32);
}

}  // namespace
}  // namespace millrace
