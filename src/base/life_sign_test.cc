#include "base/life_sign.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

/// A file of long ago that MILLRACE_HEARTBEAT names.
class LifeSignTest : public ::testing::Test {
 protected:
  LifeSignTest() {
    close(mkstemp(path_.data()));
    setenv("MILLRACE_HEARTBEAT", path_.c_str(), 1);
    Age();
  }
  ~LifeSignTest() override {
    unsetenv("MILLRACE_HEARTBEAT");
    unlink(path_.c_str());
  }
  void Age() const {
    const timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
    utimensat(AT_FDCWD, path_.c_str(), times, 0);
  }
  bool IsNew() const {
    struct stat info {};
    return stat(path_.c_str(), &info) == 0 && info.st_mtim.tv_sec > 1;
  }
  /// Signs are given a few times a second: until one was.
  template <typename Sign>
  bool ShowsAtLast(Sign sign) const {
    for (int i = 0; i < 6000 && !IsNew(); ++i) {
      sign();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return IsNew();
  }

  std::string path_ = ::testing::TempDir() + "heartbeatXXXXXX";
};

TEST_F(LifeSignTest, ChangesTheTimeOfTheFile) {
  EXPECT_TRUE(ShowsAtLast(ShowLife));
  Age();
  EXPECT_TRUE(ShowsAtLast([] { MovedBytes(1 << 20); }));
  Age();
  EXPECT_TRUE(ShowsAtLast([] { MovedBytes(2000); }));
}

TEST_F(LifeSignTest, AFewBytesAreNone) {
  for (int i = 0; i < 3; ++i) MovedBytes(300);
  EXPECT_FALSE(IsNew());
}

TEST_F(LifeSignTest, IsSeenByTheProcessesThatAreForked) {
  const auto before = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 6000 && LastLife().value_or(before) <= before; ++i) {
      ShowLife();
      usleep(10'000);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_GT(LastLife().value_or(before), before);
}

TEST_F(LifeSignTest, OfAnotherProcess) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[0], STDIN_FILENO);
    close(ends[1]);  // else it never ends
    execlp("cat", "cat", nullptr);
    _exit(1);
  }
  unsetenv("MILLRACE_HEARTBEAT");  // its own is not meant
  close(ends[0]);
  EXPECT_TRUE(ShowsAtLast([&] { ShowLifeOf(child); }));
  close(ends[1]);
  waitpid(child, nullptr, 0);
  Age();
  ShowLifeOf(getpid());
  EXPECT_FALSE(IsNew());
}

}  // namespace
}  // namespace millrace
