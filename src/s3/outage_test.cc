#include "s3/outage.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using Kind = Outage::Verdict::Kind;

const absl::Time kOutageStart = absl::FromUnixSeconds(1'700'000'000);
constexpr absl::Duration kLimit = absl::Minutes(10);

TEST(Outage, AStoreThatNeverServedIsNotWaitedFor) {
  Outage outage;
  outage.SetLimit(kLimit);
  for (int second = 0; second < 60; ++second) {
    EXPECT_EQ(outage.OnFailure(kOutageStart + absl::Seconds(second)).kind, Kind::kNone);
  }
  EXPECT_EQ(outage.TakeTurn(kOutageStart), absl::ZeroDuration());
}

TEST(Outage, WithoutALimitThereIsNone) {
  Outage outage;
  outage.OnSuccess();
  for (int second = 0; second < 60; ++second) {
    EXPECT_EQ(outage.OnFailure(kOutageStart + absl::Seconds(second)).kind, Kind::kNone);
  }
}

TEST(Outage, FailuresAmongSuccessesAreNone) {
  Outage outage;
  outage.SetLimit(kLimit);
  for (int second = 0; second < 60; second += 2) {
    EXPECT_EQ(outage.OnSuccess(), std::nullopt);
    EXPECT_EQ(outage.OnFailure(kOutageStart + absl::Seconds(second)).kind, Kind::kNone);
    EXPECT_EQ(outage.OnFailure(kOutageStart + absl::Seconds(second + 1)).kind, Kind::kNone);
  }
}

TEST(Outage, WhileItLastsOneRequestASecondGoesOut) {
  Outage outage;
  outage.SetLimit(kLimit);
  outage.OnSuccess();
  EXPECT_EQ(outage.OnFailure(kOutageStart).kind, Kind::kNone);
  const absl::Time begun = kOutageStart + Outage::kQuiet;
  const Outage::Verdict verdict = outage.OnFailure(begun);
  EXPECT_EQ(verdict.kind, Kind::kBegun);
  EXPECT_EQ(verdict.since, kOutageStart);
  EXPECT_EQ(verdict.until, kOutageStart + kLimit);
  EXPECT_EQ(outage.OnFailure(begun).kind, Kind::kWait);
  int probes = 0;
  for (absl::Duration at; at < absl::Minutes(5); at += absl::Milliseconds(1)) {
    probes += outage.TakeTurn(begun + at) == absl::ZeroDuration();
  }
  EXPECT_EQ(probes, 299);  // the failure that showed it was the first
}

TEST(Outage, TheFirstSuccessWakesAll) {
  Outage outage;
  outage.SetLimit(kLimit);
  outage.OnSuccess();
  outage.OnFailure(kOutageStart);
  outage.OnFailure(kOutageStart + Outage::kQuiet);
  const absl::Time back = kOutageStart + absl::Minutes(1);
  EXPECT_EQ(outage.TakeTurn(back), absl::ZeroDuration());
  EXPECT_EQ(outage.TakeTurn(back), Outage::kPoll);
  EXPECT_EQ(outage.OnSuccess(), kOutageStart);
  EXPECT_EQ(outage.OnSuccess(), std::nullopt);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(outage.TakeTurn(back), absl::ZeroDuration());
  // The next one begins from nothing.
  EXPECT_EQ(outage.OnFailure(back).kind, Kind::kNone);
}

TEST(Outage, AtTheLimitItIsOver) {
  Outage outage;
  outage.SetLimit(kLimit);
  outage.OnSuccess();
  outage.OnFailure(kOutageStart);
  outage.OnFailure(kOutageStart + Outage::kQuiet);
  EXPECT_EQ(outage.OnFailure(kOutageStart + kLimit - absl::Seconds(1)).kind, Kind::kWait);
  EXPECT_EQ(outage.OnFailure(kOutageStart + kLimit).kind, Kind::kOver);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outage.TakeTurn(kOutageStart + kLimit), absl::ZeroDuration());
}

}  // namespace
}  // namespace millrace
