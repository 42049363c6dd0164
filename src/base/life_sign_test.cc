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

/// There is a file of long ago whose time signs change.
class LifeSignTest : public ::testing::Test {
 protected:
  LifeSignTest() {
    close(mkstemp(path_.data()));
    SetHeartbeatFile(path_);
    Age();
  }
  ~LifeSignTest() override {
    SetHeartbeatFile("");
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
  // The test before may have left any number of bytes. And only some time after a sign, another would be seen.
  MovedBytes(1 << 20);
  std::this_thread::sleep_until(LastLife().value_or(Clock::now()) + std::chrono::milliseconds(300));
  Age();
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

}  // namespace
}  // namespace millrace
