#include "aws/credential_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kLong{60'000};

TEST(CredentialProcess, PrintsToUs) {
  EXPECT_EQ(*RunCredentialProcess("printf '%s' 'a b'; cat", kLong, {}), "a b");
  EXPECT_EQ(RunCredentialProcess("head -c 65536 /dev/zero", kLong, {})->size(), 65'536u);
  // A process that it leaves behind holds the pipe open; its own end counts.
  EXPECT_EQ(*RunCredentialProcess("(sleep 5)& echo x", kLong, {}), "x\n");
}

TEST(CredentialProcess, FailuresSayWhatAndQuoteNothing) {
  const auto failure = [](const std::string& command, milliseconds limit = kLong) {
    const auto result = RunCredentialProcess(command, limit, {});
    EXPECT_FALSE(result.ok());
    EXPECT_THAT(std::string(result.status().message()), Not(HasSubstr("CANARY")));
    return std::string(result.status().message());
  };
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(failure("echo CANARY; echo CANARY >&2; exit 3"), HasSubstr("exit status 3"));
  EXPECT_THAT(failure("CANARY_does_not_exist"), HasSubstr("exit status 127"));
  EXPECT_THAT(failure("kill -9 $$"), HasSubstr("signal 9"));
  EXPECT_THAT(failure("yes CANARY"), HasSubstr("more than 65536 bytes"));
  EXPECT_THAT(failure("echo CANARY; sleep 60", milliseconds(100)), HasSubstr("within 100 ms"));
  EXPECT_THAT(failure("exec >&-; sleep 60", milliseconds(100)), HasSubstr("within 100 ms"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(CredentialProcess, IsKilledWhenNobodyWaitsAnyMore) {
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_TRUE(absl::IsCancelled(RunCredentialProcess("sleep 60", kLong, stop.get_token()).status()));
  stopper.join();
}

}  // namespace
}  // namespace millrace
