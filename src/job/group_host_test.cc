#include "job/group_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <utility>
#include <vector>

namespace millrace {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Provides one host with a command and a coordinator that do what the test says.
class GroupHostTest : public ::testing::Test {
 protected:
  GroupHost Host(GroupHost::Options options) {
    options.grace = seconds(3);
    return GroupHost(options, {.signal = [this](int signal) { signals_.push_back(signal); },
                               .report = [this](HostState state, int status) { reports_.emplace_back(state, status); },
                               .leave = [this](HostState, int status) { left_ = status; },
                               .verdict = [this] { return verdict_; },
                               .all_know = [this] { return all_know_; },
                               .say = [](const std::string&) {}});
  }

  GroupHost::Time now_{seconds(1000)};
  std::optional<JobVerdict> verdict_;
  bool all_know_ = true;
  std::vector<int> signals_;
  std::vector<std::pair<HostState, int>> reports_;
  std::optional<int> left_;
};

TEST_F(GroupHostTest, ReportsTheEndOfItsCommandAndWaitsForTheJob) {
  GroupHost host = Host({});
  EXPECT_EQ(host.Step({}, {}, now_), std::nullopt);
  EXPECT_EQ(host.Step({}, 0, now_), std::nullopt);
  EXPECT_EQ(host.Step({}, 0, now_), std::nullopt);
  EXPECT_THAT(reports_, ElementsAre(Pair(HostState::kSucceeded, 0)));
  all_know_ = false;
  verdict_ = JobVerdict{.status = 4, .why = "x"};
  EXPECT_EQ(host.Step({}, 0, now_), std::nullopt) << "other hosts have not heard it";
  EXPECT_EQ(host.Step({}, 0, now_ + seconds(4)), std::nullopt);
  EXPECT_EQ(host.Step({}, 0, now_ + seconds(5)), 4) << "there is a limit to that";
  EXPECT_THAT(signals_, IsEmpty());
}

TEST_F(GroupHostTest, EndsItsCommandWhenTheJobHasEnded) {
  GroupHost host = Host({});
  verdict_ = JobVerdict{.status = 3, .why = "x"};
  EXPECT_EQ(host.Step({}, {}, now_), std::nullopt);
  EXPECT_THAT(signals_, ElementsAre(SIGTERM));
  EXPECT_EQ(host.Step({}, {}, now_ + seconds(2)), std::nullopt);
  EXPECT_THAT(signals_, ElementsAre(SIGTERM));
  EXPECT_EQ(host.Step({}, {}, now_ + seconds(3)), std::nullopt);
  EXPECT_THAT(signals_, ElementsAre(SIGTERM, SIGTERM)) << "the second one kills";
  EXPECT_EQ(host.Step({}, {}, now_ + seconds(5)), 3) << "its supervisor does not end";
}

TEST_F(GroupHostTest, AHostThatServesMayLeave) {
  GroupHost host = Host({.may_leave_with = 75});
  EXPECT_EQ(host.Step({}, 75, now_), 75);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(GroupHostTest, AHostThatServesLeavesWhenItIsAskedToEnd) {
  for (const int status : {0, 1, 143}) {
    GroupHost host = Host({.may_leave_with = 75});
    EXPECT_EQ(host.Step(SIGTERM, {}, now_), std::nullopt);
    EXPECT_EQ(host.Step({}, status, now_), 75) << status;
  }
  EXPECT_THAT(signals_, ElementsAre(SIGTERM, SIGTERM, SIGTERM));
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_FALSE(left_);
  GroupHost done = Host({.may_leave_with = 75});
  EXPECT_EQ(done.Step({}, 0, now_), std::nullopt);
  EXPECT_EQ(done.Step(SIGTERM, 0, now_), 75);
  EXPECT_FALSE(left_);
}

TEST_F(GroupHostTest, AnInterruptOfAHostThatServesEndsTheJob) {
  GroupHost host = Host({.may_leave_with = 75});
  EXPECT_EQ(host.Step(SIGINT, {}, now_), std::nullopt);
  EXPECT_EQ(host.Step({}, 0, now_), std::nullopt);
  EXPECT_EQ(left_, 128 + SIGINT);
}

TEST_F(GroupHostTest, AHostThatServesEndsWithTheJob) {
  GroupHost host = Host({.may_leave_with = 75});
  verdict_ = JobVerdict{.status = 0, .why = "x"};
  EXPECT_EQ(host.Step({}, {}, now_), std::nullopt);
  EXPECT_EQ(host.Step(SIGTERM, {}, now_), std::nullopt);
  EXPECT_EQ(host.Step({}, 143, now_), 0);
}

TEST_F(GroupHostTest, PassesSignalsOnAndLeaves) {
  GroupHost host = Host({});
  EXPECT_EQ(host.Step(SIGUSR1, {}, now_), std::nullopt);
  EXPECT_EQ(host.Step(SIGINT, {}, now_), std::nullopt);
  EXPECT_THAT(signals_, ElementsAre(SIGUSR1, SIGINT));
  EXPECT_FALSE(left_);
  EXPECT_EQ(host.Step({}, 0, now_), std::nullopt);
  EXPECT_EQ(left_, 128 + SIGINT) << "it may have saved and ended with 0: the job is not done";
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_EQ(host.Step(SIGUSR1, 0, now_), std::nullopt) << "there is nothing to save";
  EXPECT_EQ(host.Step({}, 0, now_ + seconds(5)), 128 + SIGINT) << "the coordinator does not answer";
}

TEST_F(GroupHostTest, TheSuccessOfTheOnlyTrainerIsThatOfTheJob) {
  GroupHost host = Host({.is_job = true});
  EXPECT_EQ(host.Step(SIGTERM, {}, now_), std::nullopt);
  EXPECT_EQ(host.Step({}, 0, now_), std::nullopt);
  EXPECT_THAT(reports_, ElementsAre(Pair(HostState::kSucceeded, 0)));
  EXPECT_FALSE(left_);
}

TEST_F(GroupHostTest, ASecondSignalEndsTheWait) {
  GroupHost host = Host({});
  EXPECT_EQ(host.Step({}, 5, now_), std::nullopt);
  EXPECT_THAT(reports_, ElementsAre(Pair(HostState::kFailed, 5)));
  EXPECT_EQ(host.Step(SIGTERM, 5, now_), std::nullopt);
  EXPECT_EQ(left_, 128 + SIGTERM);
  EXPECT_EQ(host.Step(SIGTERM, 5, now_), 128 + SIGTERM);
}

}  // namespace
}  // namespace millrace
