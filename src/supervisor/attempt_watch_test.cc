#include "supervisor/attempt_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

const AttemptWatch::Time kStart{std::chrono::hours(1)};
const Notice kInterruption{.kind = NoticeKind::kInterruption, .detail = "terminate"};
const Notice kAdvice{.kind = NoticeKind::kRebalance, .final = false};

TEST(AttemptWatch, AQuietCommandIsLeftAlone) {
  AttemptWatch watch({}, kStart);
  EXPECT_FALSE(watch.Next());
  EXPECT_EQ(watch.OnTime(kStart + std::chrono::hours(1000)).signal, 0);
  EXPECT_FALSE(watch.ending());
}

TEST(AttemptWatch, ASignalIsPassedOnThenItIsKilled) {
  AttemptWatch watch({.grace = seconds(120), .hang_after = seconds(10)}, kStart);
  EXPECT_EQ(watch.OnStop(SIGINT, std::nullopt, false, kStart + seconds(1)).signal, SIGINT);
  EXPECT_TRUE(watch.stopped() && watch.ending());
  EXPECT_EQ(watch.Next(), kStart + seconds(121));
  EXPECT_EQ(watch.OnTime(kStart + seconds(60)).signal, 0);  // no hang while it ends
  EXPECT_EQ(watch.OnTime(kStart + seconds(121)).signal, SIGKILL);
  EXPECT_EQ(watch.Next(), kStart + seconds(241));  // and again
  AttemptWatch twice({.grace = seconds(120)}, kStart);
  twice.OnStop(SIGTERM, std::nullopt, false, kStart);
  EXPECT_EQ(twice.OnStop(SIGTERM, std::nullopt, false, kStart + seconds(1)).signal, SIGKILL);
}

TEST(AttemptWatch, WithoutALimitItHasAllTheTime) {
  AttemptWatch watch({.grace = AttemptLimits::kNoGraceLimit}, kStart);
  const AttemptWatch::Action action = watch.OnStop(SIGTERM, std::nullopt, false, kStart);
  EXPECT_EQ(action.signal, SIGTERM);
  EXPECT_EQ(action.text, "SIGTERM is passed on to the command");
  EXPECT_EQ(watch.OnTime(kStart + std::chrono::hours(24 * 365)).signal, 0);
}

TEST(AttemptWatch, AProgramThatLooksForNoticesIsNotTerminated) {
  AttemptWatch watch({.grace = seconds(120)}, kStart);
  EXPECT_EQ(watch.OnStop(SIGTERM, std::nullopt, true, kStart).signal, 0);
  EXPECT_EQ(watch.Next(), kStart + seconds(120));
  EXPECT_EQ(watch.OnStop(SIGTERM, std::nullopt, true, kStart).signal, SIGKILL);
  AttemptWatch interrupted({.grace = seconds(120)}, kStart);
  EXPECT_EQ(interrupted.OnStop(SIGINT, std::nullopt, true, kStart).signal, SIGINT);
}

TEST(AttemptWatch, TheSchedulerMayGiveLessThanTheGrace) {
  AttemptWatch watch({.grace = seconds(120)}, kStart);
  EXPECT_THAT(watch.OnStop(SIGTERM, seconds(30), false, kStart).text, HasSubstr("25.0 s to end"));
  EXPECT_EQ(watch.Next(), kStart + seconds(25));
}

TEST(AttemptWatch, WhatACommandLeavesEndsInTheSameTime) {
  const seconds most(30);
  EXPECT_EQ(AttemptWatch({.grace = seconds(120)}, kStart).LimitOfLeft(kStart), most);
  EXPECT_EQ(AttemptWatch({.grace = seconds(5)}, kStart).LimitOfLeft(kStart), seconds(5));
  AttemptWatch watch({.grace = seconds(120)}, kStart);
  watch.OnStop(SIGTERM, seconds(45), false, kStart);  // 40 s without the margin
  EXPECT_EQ(watch.LimitOfLeft(kStart + seconds(3)), most);
  EXPECT_EQ(watch.LimitOfLeft(kStart + seconds(35)), seconds(5));
  EXPECT_EQ(watch.LimitOfLeft(kStart + seconds(41)), seconds(0));
  AttemptWatch notice({.grace = seconds(120)}, kStart);
  notice.OnNotice(kInterruption, seconds(20), false, kStart);
  EXPECT_EQ(notice.LimitOfLeft(kStart + seconds(5)), seconds(10));
}

TEST(ParseJobEndTime, IsThatOfTheKill) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_EQ(ParseJobEndTime("1800000060", now), now + absl::Seconds(60));
  // At its end Slurm sends SIGTERM, and kills 30 s later.
  EXPECT_EQ(ParseJobEndTime("1800000000", now), now + absl::Seconds(30));
  EXPECT_EQ(ParseJobEndTime("1799999990", now), now + absl::Seconds(20));
  EXPECT_EQ(ParseJobEndTime("1799999900", now), std::nullopt);  // the job was given more time
  for (const char* text : {"", "0", "soon", "-5", "99999999999999999999"})
    EXPECT_EQ(ParseJobEndTime(text, now), std::nullopt);
}

TEST(AttemptWatch, AHangIsEnded) {
  AttemptWatch watch({.grace = seconds(30), .hang_after = minutes(10)}, kStart);
  EXPECT_EQ(watch.Next(), kStart + minutes(10));
  watch.OnAlive(kStart + minutes(9));
  watch.OnAlive(kStart + minutes(2));  // told late
  EXPECT_EQ(watch.OnTime(kStart + minutes(10)).signal, 0);
  EXPECT_EQ(watch.Next(), kStart + minutes(19));
  EXPECT_EQ(watch.OnTime(kStart + minutes(19)).signal, SIGTERM);
  EXPECT_TRUE(watch.hang() && watch.ending());
  watch.OnAlive(kStart + minutes(19));  // what it says while it ends does not save it
  EXPECT_EQ(watch.OnTime(kStart + minutes(19) + seconds(29)).signal, 0);
  EXPECT_EQ(watch.OnTime(kStart + minutes(19) + seconds(30)).signal, SIGKILL);
}

TEST(AttemptWatch, AFinalNoticeLeavesTimeToSave) {
  AttemptWatch watch({.grace = seconds(120), .hang_after = minutes(1)}, kStart);
  const AttemptWatch::Action action = watch.OnNotice(kInterruption, seconds(118), false, kStart);
  EXPECT_EQ(action.signal, SIGTERM);
  EXPECT_THAT(action.text, HasSubstr("113.0 s to save"));
  EXPECT_TRUE(watch.leaves() && watch.ending());
  EXPECT_EQ(watch.OnTime(kStart + seconds(112)).signal, 0);  // saving is no hang
  EXPECT_EQ(watch.OnTime(kStart + seconds(113)).signal, SIGKILL);
}

TEST(AttemptWatch, NoticesAreSignalledOnce) {
  AttemptWatch watch({.grace = seconds(120)}, kStart);
  EXPECT_EQ(watch.OnNotice({.kind = NoticeKind::kScaleIn}, std::nullopt, false, kStart).signal, SIGTERM);
  EXPECT_EQ(watch.Next(), kStart + seconds(120));
  EXPECT_EQ(watch.OnNotice(kInterruption, seconds(60), false, kStart).signal, 0);
  EXPECT_EQ(watch.Next(), kStart + seconds(55));  // the earlier one counts
  EXPECT_EQ(watch.OnNotice(kInterruption, seconds(600), false, kStart).signal, 0);
  EXPECT_EQ(watch.Next(), kStart + seconds(55));
  // EC2 shuts the machine down: SIGTERM comes from init, and does not give more time.
  EXPECT_EQ(watch.OnStop(SIGTERM, std::nullopt, false, kStart + seconds(50)).signal, SIGTERM);
  EXPECT_EQ(watch.Next(), kStart + seconds(55));
  AttemptWatch late({.grace = seconds(120)}, kStart);
  EXPECT_EQ(late.OnNotice(kInterruption, seconds(-10), false, kStart).signal, SIGTERM);
  EXPECT_EQ(late.Next(), kStart + seconds(1));
}

TEST(AttemptWatch, WhichSignal) {
  AttemptWatch polls({}, kStart);
  EXPECT_EQ(polls.OnNotice(kInterruption, seconds(118), true, kStart).signal, 0);
  EXPECT_EQ(polls.OnTime(kStart + seconds(113)).signal, SIGKILL);
  AttemptWatch chosen({.notice_signal = SIGUSR1}, kStart);
  EXPECT_EQ(chosen.OnNotice(kInterruption, seconds(118), true, kStart).signal, SIGUSR1);
  AttemptWatch none({.notice_signal = 0}, kStart);
  EXPECT_EQ(none.OnNotice(kInterruption, seconds(118), false, kStart).signal, 0);
  EXPECT_TRUE(none.leaves());
}

TEST(AttemptWatch, AdviceEndsNothing) {
  AttemptWatch watch({.grace = seconds(120)}, kStart);
  EXPECT_EQ(watch.OnNotice(kAdvice, std::nullopt, false, kStart).signal, 0);
  EXPECT_FALSE(watch.ending() || watch.leaves() || watch.advised(kStart));
  AttemptWatch chosen({.grace = seconds(120), .notice_signal = SIGUSR1}, kStart);
  EXPECT_EQ(chosen.OnNotice(kAdvice, std::nullopt, false, kStart).signal, SIGUSR1);
  EXPECT_FALSE(chosen.ending() || chosen.leaves());
  EXPECT_TRUE(chosen.advised(kStart + seconds(119)));
  EXPECT_FALSE(chosen.advised(kStart + seconds(120)));
  EXPECT_EQ(chosen.OnNotice(kInterruption, seconds(118), false, kStart + seconds(200)).signal, SIGUSR1);
}

}  // namespace
}  // namespace millrace
