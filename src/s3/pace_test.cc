#include "s3/pace.h"

#include <gtest/gtest.h>

#include <functional>
#include <queue>
#include <vector>

#include "base/backoff.h"
#include "base/rng.h"

namespace millrace {
namespace {

const absl::Time kPaceStart = absl::FromUnixSeconds(1'767'225'600);

// A store that allows so many requests a second, with a burst of a tenth of a second, and turns others away at random.
struct Store {
  std::function<double(double)> limit = [](double) { return 1e9; };   // requests a second, at a second of the run
  std::function<double(double)> random = [](double) { return 0.0; };  // part that is turned away whatever the pace
  double tokens = 1e9;                                                // the bucket is full at first
  double filled = 0;
  Rng rng{1};

  bool Take(double at) {
    tokens = std::min(limit(at) / 10, tokens + (at - filled) * limit(at));
    filled = at;
    if (rng.Unit() < random(at)) return false;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  }
};

struct Second {
  int passed = 0;
  int failed = 0;
};

// `calls` callers ask for one object after the other for `seconds` of simulated time. Answers take 30 ms, refusals 2
// ms.
std::vector<Second> Simulate(Store store, int calls, int seconds) {
  Pace pace(kPromisedReads, kPaceStart);
  struct Event {
    double at;
    double sent;
    int what;  // 0: wants a turn, 1: arrives, 2: is answered "yes", 3: "no"
    int failures;
    bool operator<(const Event& other) const { return at > other.at; }
  };
  std::priority_queue<Event> events;
  for (int i = 0; i < calls; ++i) events.push({0, 0, 0, 0});
  std::vector<Second> result(static_cast<size_t>(seconds));
  uint64_t key = 0;
  while (!events.empty() && events.top().at < seconds) {
    const Event event = events.top();
    events.pop();
    const absl::Time now = kPaceStart + absl::Seconds(event.at);
    if (event.what == 0) {
      const double wait = absl::ToDoubleSeconds(pace.TakeTurn(now));
      events.push({event.at + (wait > 0 ? wait : 0.001), event.at, wait > 0 ? 0 : 1, event.failures});
    } else if (event.what == 1) {
      const bool served = store.Take(event.at);
      events.push({event.at + (served ? 0.029 : 0.001), event.sent, served ? 2 : 3, event.failures});
    } else {
      const bool passed = event.what == 2;
      pace.OnAnswer(!passed, kPaceStart + absl::Seconds(event.sent), now);
      (passed ? result[static_cast<size_t>(event.at)].passed : result[static_cast<size_t>(event.at)].failed) += 1;
      const int failures = passed ? 0 : event.failures + 1;
      const double wait = passed ? 0 : absl::ToDoubleSeconds(Backoff(failures, ++key));
      events.push({event.at + wait, 0, 0, failures});
    }
  }
  return result;
}

Second Sum(const std::vector<Second>& run, size_t from, size_t to) {
  Second sum;
  for (size_t i = from; i < to; ++i) {
    sum.passed += run[i].passed;
    sum.failed += run[i].failed;
  }
  return sum;
}

TEST(Pace, FindsALimitAndStaysBelowIt) {
  Store store;
  store.limit = [](double) { return 5500.0; };
  const auto run = Simulate(store, 1000, 20);
  const Second all = Sum(run, 0, 20);
  EXPECT_GE(all.passed, 0.9 * 5500 * 20);
  EXPECT_LE(all.failed, 0.01 * all.passed);
  for (size_t i = 1; i < run.size(); ++i) EXPECT_GE(run[i].passed, 0.88 * 5500) << i;
}

TEST(Pace, FindsLimitsOfAnySize) {
  for (const double limit : {50.0, 1000.0, 20000.0}) {
    Store store;
    store.limit = [limit](double) { return limit; };
    const Second settled = Sum(Simulate(store, 1000, 20), 10, 20);
    EXPECT_GE(settled.passed, 0.85 * limit * 10) << limit;
    EXPECT_LE(settled.failed, 0.03 * settled.passed + 20) << limit;
  }
}

TEST(Pace, DoesNotSlowDownAStoreWithoutLimits) {
  const auto run = Simulate(Store(), 256, 4);
  EXPECT_GE(run[0].passed, 0.5 * 256 / 0.03);
  EXPECT_GE(Sum(run, 1, 4).passed, 0.97 * 3 * 256 / 0.03);
}

TEST(Pace, FollowsACapacityThatHalvesAndComesBack) {
  Store store;
  store.limit = [](double at) { return at < 5 || at >= 35 ? 8000.0 : 4000.0; };
  const auto run = Simulate(store, 1000, 55);
  EXPECT_GE(Sum(run, 6, 35).passed, 0.9 * 4000 * 29);
  EXPECT_LE(Sum(run, 6, 35).failed, 0.03 * 4000 * 29);
  EXPECT_GE(run[45].passed, 0.93 * 8000);
  EXPECT_GE(Sum(run, 45, 55).passed, 0.9 * 8000 * 10);
}

TEST(Pace, DoesNotCollapseWhenThrottlesComeWhateverThePace) {
  Store store;
  store.random = [](double at) { return at >= 5 && at < 35 ? 0.3 : 0.0; };
  store.limit = [](double) { return 20000.0; };
  const auto run = Simulate(store, 1000, 50);
  const Second free = run[4];
  const Second storm = Sum(run, 5, 35);
  EXPECT_GE(storm.passed, 0.6 * free.passed * 30);
  EXPECT_LE(storm.failed + storm.passed, 1.5 * storm.passed);
  EXPECT_GE(run[45].passed, 0.95 * free.passed);
}

TEST(Pace, AFewThrottledAnswersAreNoLimit) {
  Store store;
  store.random = [](double) { return 0.002; };
  const auto run = Simulate(store, 256, 10);
  EXPECT_GE(Sum(run, 1, 10).passed, 0.9 * 9 * 256 / 0.03);
}

TEST(Pacer, KeepsPrefixesAndKindsApart) {
  Pacer pacer;
  const auto turns = [&](Pacer::Kind kind, std::string_view key, int count) {
    absl::Duration wait;
    for (int i = 0; i < count; ++i) wait = pacer.TakeTurn(kind, "b", key, kPaceStart).wait;
    return wait;
  };
  EXPECT_GT(turns(Pacer::Kind::kRead, "a/1", 1000), absl::Milliseconds(100));
  EXPECT_GT(turns(Pacer::Kind::kRead, "a/2", 1), absl::Milliseconds(100));
  EXPECT_EQ(turns(Pacer::Kind::kRead, "a/b/1", 1), absl::ZeroDuration());
  EXPECT_EQ(turns(Pacer::Kind::kRead, "1", 1), absl::ZeroDuration());
  EXPECT_EQ(turns(Pacer::Kind::kWrite, "a/1", 1), absl::ZeroDuration());
}

// Returns how long the last of so many requests waits that are made at once.
absl::Duration WaitOfLast(Pacer& pacer, std::string_view bucket, std::string_view key, absl::Time now) {
  absl::Duration wait;
  for (int i = 0; i < 500; ++i) wait = pacer.TakeTurn(Pacer::Kind::kRead, bucket, key, now).wait;
  return wait;
}

TEST(Pacer, WhatOneFolderHasLearntHoldsForTheNext) {
  Pacer fresh;
  const absl::Duration at_first = WaitOfLast(fresh, "b", "x/", kPaceStart);
  Pacer pacer;
  absl::Time now = kPaceStart;
  for (int i = 0; i < 20'000; ++i) {  // more than the pace allows, and all of them are served
    now += absl::Microseconds(100);
    if (pacer.TakeTurn(Pacer::Kind::kRead, "b", "a/1", now).wait == absl::ZeroDuration())
      pacer.OnAnswer(Pacer::Kind::kRead, "b", "a/1", /*throttled=*/false, now, now + absl::Microseconds(1));
  }
  // The same holds when the pace used last is of another kind or bucket, as while data are packed.
  pacer.TakeTurn(Pacer::Kind::kWrite, "out", "shards/1", now);
  EXPECT_LT(WaitOfLast(pacer, "b", "c/1", now), 0.8 * at_first);
  EXPECT_EQ(WaitOfLast(pacer, "other", "c/1", now), at_first);
}

TEST(Pacer, AThrottledFolderIsNoGuideToTheNext) {
  Pacer fresh;
  const absl::Duration at_first = WaitOfLast(fresh, "b", "x/", kPaceStart);
  Pacer pacer;
  absl::Time now = kPaceStart;
  for (int i = 0; i < 2'000; ++i) {
    now += absl::Milliseconds(1);
    pacer.TakeTurn(Pacer::Kind::kRead, "b", "a/1", now);
    pacer.OnAnswer(Pacer::Kind::kRead, "b", "a/1", /*throttled=*/i % 2 == 0, now, now + absl::Microseconds(1));
  }
  EXPECT_EQ(WaitOfLast(pacer, "b", "c/1", now), at_first);
}

TEST(Pacer, ForgetsPrefixesThatWereUsedLongAgo) {
  Pacer pacer;
  for (int i = 0; i < 1000; ++i) pacer.TakeTurn(Pacer::Kind::kRead, "b", "first/x", kPaceStart);
  for (int i = 0; i < 5000; ++i) {
    EXPECT_EQ(pacer.TakeTurn(Pacer::Kind::kRead, "b", std::to_string(i) + "/x", kPaceStart).wait, absl::ZeroDuration());
  }
  EXPECT_EQ(pacer.TakeTurn(Pacer::Kind::kRead, "b", "first/x", kPaceStart).wait, absl::ZeroDuration());
}

}  // namespace
}  // namespace millrace
