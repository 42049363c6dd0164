#include "supervisor/restart_policy.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

AttemptEnd Exited(int status, milliseconds ran = seconds(1)) {
  return {.status = status, .signal = 0, .ran = ran};
}
AttemptEnd Killed(int signal, milliseconds ran = seconds(1)) {
  return {.status = 128 + signal, .signal = signal, .ran = ran};
}

TEST(RestartPolicy, RetriesAreAttemptsBeyondTheFirst) {
  for (const uint64_t retries : {0, 1, 5}) {
    RestartPolicy policy(retries, milliseconds(1));
    uint64_t attempts = 1;
    while (policy.OnEnd(Exited(1)).restart) ++attempts;
    EXPECT_EQ(attempts, retries + 1);
    EXPECT_FALSE(policy.OnEnd(Exited(1)).restart);
  }
}

TEST(RestartPolicy, SomeEndsAreFinal) {
  RestartPolicy policy(10, milliseconds(1));
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
  RestartPolicy policy(100, seconds(1));
  for (const int expected : {1, 2, 4, 8, 16, 32, 60, 60}) EXPECT_EQ(policy.OnEnd(Exited(1)).delay, seconds(expected));
  EXPECT_EQ(policy.OnEnd(Killed(SIGKILL, seconds(60))).delay, seconds(1));  // it ran for long
  EXPECT_EQ(policy.OnEnd(Exited(1)).delay, seconds(2));
  RestartPolicy slow(100, seconds(300));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(slow.OnEnd(Exited(1)).delay, seconds(300));
  RestartPolicy none(100, seconds(0));
  for (int i = 0; i < 70; ++i) EXPECT_EQ(none.OnEnd(Exited(1)).delay, seconds(0));
}

TEST(RestartPolicy, EndsAreSaid) {
  EXPECT_EQ(EndText(Exited(3)), "exited with status 3");
  EXPECT_EQ(EndText(Killed(SIGKILL)), "was killed by signal 9 (SIGKILL)");
}

}  // namespace
}  // namespace millrace
