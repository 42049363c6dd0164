#include "base/long_task.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

TEST(SleepUnlessStopped, SleepsOrIsStopped) {
  std::stop_source stop;
  EXPECT_TRUE(SleepUnlessStopped(std::chrono::milliseconds(1), stop.get_token()));
  EXPECT_TRUE(SleepUnlessStopped(std::chrono::milliseconds(1), {}));
  std::jthread stops([&stop] { stop.request_stop(); });
  EXPECT_FALSE(SleepUnlessStopped(std::chrono::hours(1), stop.get_token()));
  EXPECT_FALSE(SleepUnlessStopped(std::chrono::hours(1), stop.get_token())) << "stopped before";
}

}  // namespace
}  // namespace millrace
