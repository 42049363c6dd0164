#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/log_setting.h"

namespace millrace {
namespace {

// Levels are read once a process, so each case is one of its own.
class LogDeathTest : public ::testing::Test {
 protected:
  LogDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void LogAll(const char* setting) {
    setenv("MILLRACE_LOG", setting, 1);
    for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError})
      Log(level, "test", LogEnabled(level) ? "told" : "silent");
    Log(LogLevel::kError, "test", "end");
    std::exit(0);
  }
};

TEST_F(LogDeathTest, LevelsSayWhatIsWritten) {
  EXPECT_EXIT(LogAll("debug"), ::testing::ExitedWithCode(0),
              " debug test: told\n.* info test: told\n.* warning test: told\n.* error test: told\n");
  EXPECT_EXIT(LogAll("error"), ::testing::ExitedWithCode(0), "^[^\n]* error test: told\n[^\n]* error test: end\n$");
  EXPECT_EXIT(LogAll("off"), ::testing::ExitedWithCode(0), "^$");
  for (const char* setting : {"", "warning"}) {
    EXPECT_EXIT(LogAll(setting), ::testing::ExitedWithCode(0), "^[^\n]* warning test: told\n[^\n]* error test: told\n");
  }
}

TEST_F(LogDeathTest, AnUnknownLevelIsTold) {
  EXPECT_EXIT(
      LogAll("loud"), ::testing::ExitedWithCode(0),
      "^[^\n]*MILLRACE_LOG is 'loud'; it must be debug, info, warning, error or off[^\n]*\n[^\n]* warning test: "
      "told\n[^\n]* error test: told\n[^\n]* error test: end\n$");
}

// Returns "S" for one that waits, "" before it is there. A sanitizer may have threads of its own.
std::string StateOfThread(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(") ");
  return name_end == text.npos ? "" : text.substr(name_end + 2, 1);
}

// The thread waits within a write to a pipe that is full, with the lock of its logger.
void ForkWhileAThreadLogs() {
  const int own = dup(STDERR_FILENO);
  std::array<int, 2> full{};
  if (pipe(full.data()) != 0 || dup2(full[1], STDERR_FILENO) < 0) std::exit(1);
  fcntl(full[1], F_SETFL, O_NONBLOCK);
  while (write(full[1], "text", 4) > 0) {
  }
  fcntl(full[1], F_SETFL, 0);
  std::atomic<pid_t> thread = 0;
  std::thread logs([&thread] {
    thread = gettid();
    Log(LogLevel::kError, "test", "by a thread");
  });
  // The state of a thread that waits in a write: poll does not show it.
  for (std::string state; state != "S";) state = StateOfThread(thread);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    dup2(own, STDERR_FILENO);
    Log(LogLevel::kError, "test", "by a fork");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  // Now the write ends. The thread sanitizer's _exit would wait for the lock of stderr.
  std::array<char, 1 << 16> text{};
  if (read(full[0], text.data(), text.size()) < 0) std::exit(1);
  logs.join();
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

TEST_F(LogDeathTest, AForkLogsWhateverOtherThreadsWereAt) {
  EXPECT_EXIT(ForkWhileAThreadLogs(), ::testing::ExitedWithCode(0), " error test: by a fork\n$");
}

TEST(LogSetting, IsChecked) {
  const char* const before = std::getenv("MILLRACE_LOG");
  const std::string kept = before == nullptr ? "" : before;
  for (const char* good : {"", "debug", "info", "warning", "error", "off"}) {
    setenv("MILLRACE_LOG", good, 1);
    EXPECT_TRUE(CheckLogSetting().ok()) << good;
  }
  for (const char* bad : {"trace", "DEBUG", "warn", "2", " debug"}) {
    setenv("MILLRACE_LOG", bad, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckLogSetting())) << bad;
  }
  setenv("MILLRACE_LOG", kept.c_str(), 1);
}

}  // namespace
}  // namespace millrace
