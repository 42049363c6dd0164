#include "base/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ChildCommand Shell(const std::string& script) {
  return {.words = {"sh", "-c", script}};
}

TEST(RunChild, GivesWhatItPrintsAndHowItEnds) {
  const auto end = RunChild(Shell("echo out; echo err >&2; exit 3"), {});
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->output, "out\n");
  EXPECT_THAT(end->errors, IsEmpty()) << "it may be secret";
  EXPECT_EQ(end->exit_status, 3);
  ChildCommand command = Shell("echo err >&2");
  command.keep_errors = true;
  EXPECT_EQ(RunChild(command, {})->errors, "err\n");
}

TEST(RunChild, TakesInputAndArguments) {
  ChildCommand command{.words = {"cat", "-", "/dev/null"}, .input = "a b\n"};
  EXPECT_EQ(RunChild(command, {})->output, "a b\n");
  command.input.assign(60 << 10, 'x');
  EXPECT_EQ(RunChild(command, {})->output, command.input);
  command.input.push_back('x');
  EXPECT_TRUE(absl::IsInvalidArgument(RunChild(command, {}).status()));
  EXPECT_EQ(RunChild(Shell("cat"), {})->output, "") << "without input there is none to wait for";
}

TEST(RunChild, KeepsTheEndOfLongErrors) {
  ChildCommand command = Shell("head -c 200000 /dev/zero >&2; echo why >&2");
  command.keep_errors = true;
  const auto end = RunChild(command, {});
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->errors.size(), 64u << 10);
  EXPECT_THAT(end->errors, ::testing::EndsWith("why\n"));
  EXPECT_THAT(std::string(RunChild(Shell("yes"), {}).status().message()), HasSubstr("more than 65536 bytes"));
}

TEST(RunChild, NoSuchProgram) {
  EXPECT_TRUE(absl::IsNotFound(RunChild({.words = {"no-such-program-at-all"}}, {}).status()));
}

TEST(RunChild, IsKilledAtTheLimitAndWhenStopped) {
  ChildCommand command = Shell("sleep 60");
  command.limit = milliseconds(100);
  EXPECT_THAT(std::string(RunChild(command, {}).status().message()), HasSubstr("within 100 ms"));
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_TRUE(absl::IsCancelled(RunChild(Shell("sleep 60"), stop.get_token()).status()));
  stopper.join();
}

}  // namespace
}  // namespace millrace
