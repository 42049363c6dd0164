#include "base/process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/clock.h"

namespace millrace {
namespace {

TEST(Process, VariablesAndTheHost) {
  ASSERT_EQ(setenv("MILLRACE_PROCESS_TEST", "value", 1), 0);
  EXPECT_EQ(EnvironmentValue("MILLRACE_PROCESS_TEST"), "value");
  ASSERT_EQ(unsetenv("MILLRACE_PROCESS_TEST"), 0);
  EXPECT_EQ(EnvironmentValue("MILLRACE_PROCESS_TEST"), "");
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  EXPECT_EQ(HostName(), host.data());
}

TEST(Process, TimeAndMemory) {
  const double before = CpuSeconds();
  while (CpuSeconds() == before) {
  }
  EXPECT_GT(CpuSeconds(), before);
  EXPECT_GT(PeakResidentBytes(), uint64_t{64} << 10);
}

TEST(Process, TheFileLimitIsRaisedAndRestored) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit now{};
  AllowManyFiles();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
  RestoreFileLimit();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_cur);
}

TEST(Clock, TimesOfFiles) {
  const timespec time{.tv_sec = 5, .tv_nsec = 123'456'789};
  EXPECT_EQ(NanosecondsOf(time), 5'123'456'789);
  EXPECT_EQ(MillisecondsOf(time), 5'123);
  EXPECT_GT(UnixMilliseconds(), 1'700'000'000'000);
  EXPECT_GE(SecondsSince(std::chrono::steady_clock::now()), 0);
}

}  // namespace
}  // namespace millrace
