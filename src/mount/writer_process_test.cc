#include "mount/writer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"

namespace millrace {
namespace {

constexpr uid_t kWriter = 64'001;
constexpr uid_t kMount = 64'002;

/// A process of `user` (0: of ours) that has ended by `end`, and that nobody has reaped.
pid_t Ended(uid_t user, absl::FunctionRef<void()> end) {
  const pid_t child = fork();
  if (child == 0) {
    if (user != 0 && setuid(user) != 0) _exit(9);
    end();
    _exit(0);
  }
  siginfo_t info;
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  return child;
}

/// The answer of WasKilled to `user` (0: to us) of a process that has ended by `end`.
bool WasKilledFor(uid_t user, uid_t writer, absl::FunctionRef<void()> end) {
  const pid_t ended = Ended(writer, end);
  const absl::Cleanup reap = [&] { waitpid(ended, nullptr, 0); };
  const pid_t asks = Ended(user, [&] { _exit(WasKilled(ended) ? 1 : 0); });
  int status = 0;
  waitpid(asks, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << status;
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/// False also for root, if it lacks the right, or its container has no such user.
bool CanBe(uid_t user) {
  const pid_t child = fork();
  if (child == 0) _exit(setuid(user) == 0 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

void Kill() {
  raise(SIGKILL);
}

TEST(WriterProcess, EndsOfOwnProcessesAreKnown) {
  EXPECT_TRUE(WasKilledFor(0, 0, Kill));
  EXPECT_FALSE(WasKilledFor(0, 0, [] { _exit(3); }));
  EXPECT_FALSE(WasKilledFor(0, 0, [] { raise(SIGPIPE); }));
  EXPECT_FALSE(WasKilledFor(0, 0, [] { raise(SIGXFSZ); }));
  EXPECT_FALSE(WasKilled(getpid()));
}

TEST(WriterProcess, EndsOfOtherUsersProcessesAreKnown) {
  if (!CanBe(kWriter) || !CanBe(kMount)) GTEST_SKIP() << "only root can be other users";
  EXPECT_TRUE(WasKilledFor(kMount, kWriter, Kill));
  EXPECT_FALSE(WasKilledFor(kMount, kWriter, [] { _exit(3); }));
  EXPECT_TRUE(WasKilledFor(kMount, kMount, Kill));
  EXPECT_TRUE(WasKilledFor(0, kWriter, Kill));
}

}  // namespace
}  // namespace millrace
