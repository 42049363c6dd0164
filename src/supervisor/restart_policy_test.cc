#include "supervisor/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

AttemptEnd Exited(int status, milliseconds ran = seconds(1)) {
  return {.status = status, .signal = 0, .ran = ran};
}
AttemptEnd Killed(int signal, milliseconds ran = seconds(1)) {
  return {.status = 128 + signal, .signal = signal, .ran = ran};
}

TEST(RestartPolicy, RetriesAreAttemptsBeyondTheFirst) {
  for (const uint64_t retries : {0, 1, 5}) {
    RestartPolicy policy({.retries = retries, .delay = milliseconds(1), .fast_failures = 0});
    uint64_t attempts = 1;
    while (policy.OnEnd(Exited(1)).restart) ++attempts;
    EXPECT_EQ(attempts, retries + 1);
    EXPECT_FALSE(policy.OnEnd(Exited(1)).restart);
  }
}

TEST(RestartPolicy, SomeEndsAreFinal) {
  RestartPolicy policy({.retries = 10, .delay = milliseconds(1), .fast_failures = 0});
  EXPECT_FALSE(policy.OnEnd(Exited(0)).restart);
  EXPECT_TRUE(policy.OnEnd(Exited(0)).why.empty());
  AttemptEnd stopped = Killed(SIGTERM);
  stopped.stopped = true;
  EXPECT_FALSE(policy.OnEnd(stopped).restart);
  for (const AttemptEnd& end : {Exited(126), Exited(127), Exited(130), Killed(SIGINT)}) {
    EXPECT_FALSE(policy.OnEnd(end).restart) << end.status;
    EXPECT_FALSE(policy.OnEnd(end).why.empty());
  }
  for (const AttemptEnd& end : {Exited(1), Exited(2), Exited(137), Killed(SIGKILL), Killed(SIGTERM), Killed(SIGSEGV)})
    EXPECT_TRUE(policy.OnEnd(end).restart) << end.status;
}

TEST(RestartPolicy, DelaysDoubleUpToAMinute) {
  RestartPolicy policy({.retries = 100, .delay = seconds(1), .fast_failures = 0});
  for (const int expected : {1, 2, 4, 8, 16, 32, 60, 60}) EXPECT_EQ(policy.OnEnd(Exited(1)).delay, seconds(expected));
  EXPECT_EQ(policy.OnEnd(Killed(SIGKILL, seconds(60))).delay, seconds(1));  // it ran for long
  EXPECT_EQ(policy.OnEnd(Exited(1)).delay, seconds(2));
  RestartPolicy slow({.retries = 100, .delay = seconds(300)});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(slow.OnEnd(Exited(1)).delay, seconds(300));
  RestartPolicy none({.retries = 100, .delay = seconds(0), .fast_failures = 0});
  for (int i = 0; i < 70; ++i) EXPECT_EQ(none.OnEnd(Exited(1)).delay, seconds(0));
}

TEST(RestartPolicy, FastFailuresInARowEndTheJob) {
  RestartPolicy policy({.retries = 100, .delay = milliseconds(1), .fast_failures = 4});
  const auto restarts = [&](milliseconds ran) { return policy.OnEnd(Exited(1, ran)).restart; };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(restarts(milliseconds(9'999)));
  EXPECT_TRUE(restarts(seconds(10)));  // this one got somewhere
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(restarts(seconds(1)));
  const RestartPolicy::Decision last = policy.OnEnd(Exited(1));
  EXPECT_FALSE(last.restart);
  EXPECT_THAT(last.why, HasSubstr("failure 4 in a row"));
  EXPECT_EQ(last.status, 1);
}

TEST(RestartPolicy, RulesDecideFirst) {
  RestartOptions options{.retries = 100, .delay = milliseconds(1), .fast_failures = 0};
  for (const char* text : {"code=3:exit", "code=127:retry", "code=75:retry", "reason=Hang*:exit",
                           "reason=OutOfMemory*:exit", "reason=Signal: SIGSEGV:exit"})
    options.rules.push_back(*ParseExitRule(text));
  RestartPolicy policy(options);
  const RestartPolicy::Decision three = policy.OnEnd(Exited(3));
  EXPECT_FALSE(three.restart);
  EXPECT_THAT(three.why, HasSubstr("rule code=3:exit"));
  EXPECT_EQ(three.outcome, JobOutcome::kFailure);
  EXPECT_TRUE(policy.OnEnd(Exited(127)).restart);
  EXPECT_TRUE(policy.OnEnd(Exited(75)).restart);
  EXPECT_TRUE(policy.OnEnd(Exited(4)).restart);
  EXPECT_TRUE(policy.OnEnd(Killed(SIGKILL)).restart);
  EXPECT_FALSE(policy.OnEnd(Killed(SIGSEGV)).restart);
  AttemptEnd end = Killed(SIGKILL);
  end.out_of_memory = true;
  EXPECT_FALSE(policy.OnEnd(end).restart);
  end = Killed(SIGTERM);
  end.hang = true;
  EXPECT_FALSE(policy.OnEnd(end).restart);
  EXPECT_EQ(policy.OnEnd(Exited(0)).outcome, JobOutcome::kSuccess);
}

TEST(RestartPolicy, AHangIsAFailureWhateverItsStatus) {
  RestartPolicy policy({.retries = 1, .delay = milliseconds(1)});
  AttemptEnd end = Exited(0, seconds(600));
  end.hang = true;
  EXPECT_TRUE(policy.OnEnd(end).restart);
  const RestartPolicy::Decision last = policy.OnEnd(end);
  EXPECT_FALSE(last.restart);
  EXPECT_EQ(last.status, 124);
  EXPECT_EQ(last.outcome, JobOutcome::kFailure);
}

TEST(RestartPolicy, AMachineThatGoesAwayGetsNoFurtherAttempt) {
  RestartPolicy policy(
      {.retries = 10, .delay = milliseconds(1), .rules = {*ParseExitRule("code=*:retry")}, .requeue_exit = 99});
  for (AttemptEnd end : {Exited(0), Exited(1), Killed(SIGKILL), Killed(SIGTERM)}) {
    end.leaves = true;
    const RestartPolicy::Decision decision = policy.OnEnd(end);
    EXPECT_FALSE(decision.restart);
    EXPECT_EQ(decision.status, 99);
    EXPECT_EQ(decision.outcome, JobOutcome::kElsewhere);
  }
  AttemptEnd advised = Exited(0);
  advised.advised = true;
  EXPECT_EQ(policy.OnEnd(advised).status, 99);
  advised = Exited(1);
  advised.advised = true;
  EXPECT_TRUE(policy.OnEnd(advised).restart);
}

TEST(RestartPolicy, AProgramMayAskForAnotherMachine) {
  RestartPolicy policy({.retries = 10, .delay = milliseconds(1)});
  const RestartPolicy::Decision decision = policy.OnEnd(Exited(75));
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.status, 75);
  EXPECT_EQ(decision.outcome, JobOutcome::kElsewhere);
}

TEST(RestartPolicy, ACommandThatServesAndIsKilledIsAlwaysStartedAgain) {
  RestartPolicy policy({.retries = 1, .delay = seconds(1), .serves = true});
  for (const int delay : {1, 2, 4, 8, 16, 32, 60, 60}) {
    const RestartPolicy::Decision decision = policy.OnEnd(delay % 3 == 0 ? Exited(137) : Killed(SIGKILL));
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay, seconds(delay));
  }
  EXPECT_TRUE(policy.OnEnd(Exited(1)).restart) << "the retries are there for failures";
  EXPECT_FALSE(policy.OnEnd(Exited(1)).restart);
  EXPECT_TRUE(policy.OnEnd(Killed(SIGTERM)).restart);
  EXPECT_TRUE(policy.OnEnd(Killed(SIGINT)).restart);
  EXPECT_TRUE(policy.OnEnd(Exited(130)).restart);
  EXPECT_FALSE(policy.OnEnd(Exited(255)).restart) << "no signal has this number";
  AttemptEnd stopped = Killed(SIGTERM);
  stopped.stopped = true;
  EXPECT_FALSE(policy.OnEnd(stopped).restart);
  RestartPolicy ruled({.rules = {*ParseExitRule("reason=Signal*:exit")}, .serves = true});
  EXPECT_FALSE(ruled.OnEnd(Killed(SIGKILL)).restart);
}

TEST(RestartPolicy, ACommandThatServesHasNoEndOfItsOwn) {
  RestartPolicy policy({.delay = seconds(1), .serves = true});
  for (const int delay : {1, 2, 4, 8}) {
    const RestartPolicy::Decision decision = policy.OnEnd(Exited(0));
    EXPECT_TRUE(decision.restart) << "servers end with 0 on SIGTERM";
    EXPECT_EQ(decision.delay, seconds(delay));
  }
  AttemptEnd stopped = Exited(0);
  stopped.stopped = true;
  EXPECT_FALSE(policy.OnEnd(stopped).restart);
  AttemptEnd leaves = Exited(0);
  leaves.leaves = true;
  EXPECT_EQ(policy.OnEnd(leaves).outcome, JobOutcome::kElsewhere);
  RestartPolicy once({.rules = {*ParseExitRule("code=0:exit")}, .serves = true});
  EXPECT_EQ(once.OnEnd(Exited(0)).outcome, JobOutcome::kSuccess);
  EXPECT_FALSE(once.OnEnd(Exited(0)).restart);
}

TEST(RestartPolicy, EndsAreSaid) {
  EXPECT_EQ(EndText(Exited(3)), "exited with status 3");
  EXPECT_EQ(EndText(Killed(SIGKILL)), "was killed by signal 9 (SIGKILL)");
  AttemptEnd hang = Killed(SIGTERM);
  hang.hang = true;
  EXPECT_EQ(EndText(hang), "hung and was killed by signal 15 (SIGTERM)");
}

}  // namespace
}  // namespace millrace
