#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

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
