#include "supervisor/group_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const GroupBoard::Time kBegin{seconds(1000)};

class GroupBoardTest : public ::testing::Test {
 protected:
  void Report(const std::string& host, HostState state = HostState::kRuns, int status = 0) {
    EXPECT_TRUE(board_.OnReport(host, host.substr(0, host.find('-')), state, status, now_));
  }
  void AllRun() {
    for (const char* host : {"data-1", "data-2", "train-1", "train-2"}) Report(host);
  }

  GroupBoard::Time now_ = kBegin;
  GroupBoard board_{{.main = "train", .main_hosts = 2, .groups = {"data", "train"}, .lost_after = seconds(4)}, kBegin};
};

TEST_F(GroupBoardTest, EndsWhenTheMainGroupHasSucceeded) {
  AllRun();
  Report("train-1", HostState::kSucceeded);
  Report("data-1", HostState::kSucceeded);
  EXPECT_FALSE(board_.Verdict(now_));
  now_ += seconds(60);
  for (const char* host : {"train-2", "data-2"}) Report(host);
  EXPECT_FALSE(board_.Verdict(now_)) << "a host that has succeeded may be silent";
  Report("train-2", HostState::kSucceeded);
  ASSERT_TRUE(board_.Verdict(now_));
  EXPECT_EQ(board_.Verdict(now_)->status, 0);
}

TEST_F(GroupBoardTest, AnyHostThatFailsForGoodEndsTheJob) {
  for (const std::string host : {"data-1", "train-2"}) {
    GroupBoard board({.main = "train", .main_hosts = 2, .groups = {"data", "train"}}, kBegin);
    board.OnReport(host, host.substr(0, host.find('-')), HostState::kFailed, 3, now_);
    ASSERT_TRUE(board.Verdict(now_));
    EXPECT_EQ(board.Verdict(now_)->status, 3);
    EXPECT_THAT(board.Verdict(now_)->why, HasSubstr(host));
  }
}

TEST_F(GroupBoardTest, AHostOfTheMainGroupThatIsLostEndsTheJob) {
  AllRun();
  now_ += seconds(4);
  Report("train-1");
  EXPECT_FALSE(board_.Verdict(now_));
  now_ += seconds(1);
  ASSERT_TRUE(board_.Verdict(now_));
  EXPECT_EQ(board_.Verdict(now_)->status, 75);
  EXPECT_THAT(board_.Verdict(now_)->why, HasSubstr("train-2"));
}

TEST_F(GroupBoardTest, AHostThatServesMayGo) {
  AllRun();
  for (const int elapsed : {3, 2}) {
    now_ += seconds(elapsed);
    for (const char* host : {"train-1", "train-2", "data-2"}) Report(host);
  }
  EXPECT_FALSE(board_.Verdict(now_));
  EXPECT_THAT(board_.TakeLost(now_), ElementsAre("data-1"));
  EXPECT_THAT(board_.TakeLost(now_), ElementsAre());
  Report("data-1");
  now_ += seconds(5);
  EXPECT_THAT(board_.TakeLost(now_), ElementsAre("data-1", "data-2")) << "lost once more";
}

TEST_F(GroupBoardTest, HostsHaveToAppear) {
  Report("train-1");
  Report("data-1");
  now_ += std::chrono::minutes(15) + seconds(1);
  Report("train-1");
  ASSERT_TRUE(board_.Verdict(now_));
  EXPECT_EQ(board_.Verdict(now_)->status, 1);
  EXPECT_THAT(board_.Verdict(now_)->why, HasSubstr("of 2 hosts of group train only 1"));
}

TEST_F(GroupBoardTest, AVerdictStays) {
  AllRun();
  Report("train-1", HostState::kFailed, 9);
  Report("train-1", HostState::kSucceeded);
  Report("train-2", HostState::kSucceeded);
  EXPECT_EQ(board_.Verdict(now_)->status, 9);
}

TEST_F(GroupBoardTest, KnowsWhenAllKnow) {
  AllRun();
  EXPECT_FALSE(board_.AllKnow(now_));
  Report("train-1", HostState::kFailed, 9);
  Report("train-2");
  Report("data-1");
  EXPECT_FALSE(board_.AllKnow(now_)) << "data-2 has not asked since";
  now_ += seconds(5);
  EXPECT_TRUE(board_.AllKnow(now_)) << "it is lost";
}

TEST_F(GroupBoardTest, OtherGroupsAreNone) {
  EXPECT_FALSE(board_.OnReport("x", "gpu", HostState::kFailed, 1, now_));
  EXPECT_FALSE(board_.Verdict(now_));
}

}  // namespace
}  // namespace millrace
