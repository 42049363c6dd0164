// Tests the protocol of the instance metadata service against a strict model of it, which fails on request.
#include "supervisor/imds_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "aws/testing/fake_imds.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kBoot = absl::FromUnixSeconds(1'767'225'600);  // 2026-01-01
constexpr char kSpot[] = "/latest/meta-data/spot/instance-action";
constexpr char kRebalance[] = "/latest/meta-data/events/recommendations/rebalance";
constexpr char kMaintenance[] = "/latest/meta-data/events/maintenance/scheduled";
constexpr char kTarget[] = "/latest/meta-data/autoscaling/target-lifecycle-state";

class ImdsWatchTest : public ::testing::Test {
 protected:
  static ImdsWatch NewWatch() { return ImdsWatch({.server = {"169.254.169.254", 80, false}, .base_path = ""}); }

  /// Lets time pass, and returns how long the last wait was.
  void Run(absl::Duration time) {
    const absl::Time end = imds_.now + time;
    if (!begun_) step_ = watch_.Begin(imds_.now);
    begun_ = true;
    for (int calls = 0; imds_.now < end; ++calls) {
      ASSERT_LT(calls, 1'000'000) << "it does not wait";
      for (const Notice& notice : step_.notices) notices_.push_back(notice);
      if (!step_.problem.empty()) problems_.push_back(step_.problem);
      if (step_.call) {
        const TextAnswer answer = imds_.Answer(*step_.call);
        if (answer.head.status == 0) imds_.now += absl::Seconds(2);
        step_ = watch_.OnAnswer(answer, imds_.now);
      } else {
        ASSERT_GT(step_.wait, absl::ZeroDuration());
        waits_.push_back(step_.wait);
        imds_.now += step_.wait;
        step_ = watch_.AfterWait(imds_.now);
      }
    }
  }

  FakeImds imds_;
  ImdsWatch watch_ = NewWatch();
  ImdsWatch::Step step_;
  bool begun_ = false;
  std::vector<Notice> notices_;
  std::vector<std::string> problems_;
  std::vector<absl::Duration> waits_;
};

TEST_F(ImdsWatchTest, ReadsAllFourEveryTwoSecondsWithOneToken) {
  Run(absl::Minutes(10));
  EXPECT_EQ(imds_.tokens, 1);
  for (const char* path : {kSpot, kRebalance, kMaintenance, kTarget}) EXPECT_EQ(imds_.reads[path], 300) << path;
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(ImdsWatchTest, TheTokenIsRenewedBeforeItExpires) {
  Run(absl::Hours(25));
  EXPECT_EQ(imds_.refused, 0);
  EXPECT_EQ(imds_.tokens, 5);
  imds_ = FakeImds();
  imds_.ttl = absl::Seconds(5);
  begun_ = false;
  watch_ = NewWatch();
  Run(absl::Minutes(1));
  EXPECT_EQ(imds_.refused, 0);
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(ImdsWatchTest, ATokenThatTheServiceForgotIsRenewedAtOnce) {
  Run(absl::Seconds(5));
  imds_.expires = absl::InfinitePast();
  Run(absl::Seconds(10));
  EXPECT_EQ(imds_.refused, 1);
  EXPECT_EQ(imds_.tokens, 2);
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(ImdsWatchTest, AnInterruptionIsToldOnce) {
  Run(absl::Seconds(5));
  imds_.documents[kSpot] = R"({"action":"terminate","time":"2026-01-01T00:02:05Z"})";
  Run(absl::Seconds(30));
  ASSERT_THAT(notices_, SizeIs(1));
  EXPECT_EQ(notices_[0].kind, NoticeKind::kInterruption);
  EXPECT_EQ(notices_[0].detail, "terminate");
  EXPECT_EQ(notices_[0].at, kBoot + absl::Seconds(125));
  EXPECT_TRUE(notices_[0].final);
  EXPECT_EQ(NoticeText(notices_[0]), "EC2 will terminate this spot instance at 2026-01-01T00:02:05Z");
}

TEST_F(ImdsWatchTest, AMachineThatHibernatesComesBack) {
  imds_.documents[kSpot] = R"({"action":"hibernate","time":"2026-01-01T00:00:05Z"})";
  Run(absl::Seconds(4));
  ASSERT_THAT(notices_, SizeIs(1));
  EXPECT_FALSE(notices_[0].final);
}

TEST_F(ImdsWatchTest, TimesAreThoseOfThisMachine) {
  imds_.skew = absl::Minutes(10);  // our clock is late
  imds_.documents[kSpot] = R"({"action":"stop","time":"2026-01-01T00:12:00Z"})";
  Run(absl::Seconds(5));
  ASSERT_THAT(notices_, SizeIs(1));
  EXPECT_EQ(notices_[0].at, kBoot + absl::Minutes(2));
}

TEST_F(ImdsWatchTest, OtherNotices) {
  imds_.documents[kRebalance] = R"({"noticeTime":"2026-01-01T00:00:00Z"})";
  imds_.documents[kMaintenance] =
      R"([{"NotBefore":"1 Jan 2026 00:02:00 GMT","NotAfter":"","Code":"instance-stop","State":"canceled"},
          {"NotBefore":"1 Jan 2026 02:00:00 GMT","NotAfter":"","Code":"system-reboot","State":"active"}])";
  imds_.documents[kTarget] = "InService";
  Run(absl::Seconds(10));
  ASSERT_THAT(notices_, SizeIs(2));
  EXPECT_EQ(notices_[0].kind, NoticeKind::kRebalance);
  EXPECT_FALSE(notices_[0].final);
  EXPECT_EQ(notices_[1].kind, NoticeKind::kMaintenance);
  EXPECT_EQ(notices_[1].at, kBoot + absl::Hours(2));
  EXPECT_FALSE(notices_[1].final);
  imds_.documents[kTarget] = "Terminated\n";
  Run(absl::Minutes(116));
  ASSERT_THAT(notices_, SizeIs(4));
  EXPECT_EQ(notices_[2].kind, NoticeKind::kScaleIn);
  EXPECT_EQ(notices_[3].detail, "system-reboot");
  EXPECT_TRUE(notices_[3].final);
}

TEST_F(ImdsWatchTest, NoTokenNeverMeansAskingWithoutOne) {
  // These are a hop limit that is too small, a service that is switched off, version 1 alone, a captive portal.
  for (const TextAnswer& answer :
       {NoImdsReply(), ImdsReply(403), ImdsReply(404), ImdsReply(200, "<html>\nlog in</html>")}) {
    imds_ = FakeImds();
    watch_ = NewWatch();
    begun_ = false;
    waits_.clear();
    problems_.clear();
    imds_.token_fault = answer;
    imds_.documents[kSpot] = R"({"action":"terminate","time":"2026-01-01T00:02:05Z"})";
    Run(absl::Hours(1));
    EXPECT_THAT(imds_.reads, IsEmpty());
    EXPECT_EQ(imds_.requests, imds_.tokens);
    EXPECT_THAT(notices_, IsEmpty());
    EXPECT_THAT(problems_, ElementsAre(HasSubstr("hop limit")));
    EXPECT_LT(imds_.tokens, 70);
    EXPECT_EQ(waits_.front(), absl::Seconds(2));
    EXPECT_EQ(waits_.back(), absl::Minutes(1));
    imds_.token_fault.reset();
    Run(absl::Minutes(2));
    EXPECT_THAT(notices_, SizeIs(1));
    notices_.clear();
  }
}

TEST_F(ImdsWatchTest, ATokenThatCannotBeRenewedServesUntilItsEnd) {
  imds_.ttl = absl::Minutes(10);
  Run(absl::Minutes(1));
  imds_.token_fault = ImdsReply(500);
  Run(absl::Minutes(8) + absl::Seconds(50));
  imds_.documents[kSpot] = R"({"action":"terminate","time":"2026-01-01T00:12:05Z"})";
  Run(absl::Seconds(8));
  EXPECT_THAT(notices_, SizeIs(1));
}

TEST_F(ImdsWatchTest, FailuresAreNoNotices) {
  for (const TextAnswer& answer : {NoImdsReply(), ImdsReply(500), ImdsReply(401), ImdsReply(200, "<html>"),
                                   ImdsReply(200, "{}"), ImdsReply(200, R"({"action":"a b","time":""})")}) {
    imds_ = FakeImds();
    watch_ = NewWatch();
    begun_ = false;
    problems_.clear();
    imds_.fault = answer;
    Run(absl::Minutes(5));
    EXPECT_THAT(notices_, IsEmpty()) << answer.head.status << answer.result.text;
    EXPECT_THAT(problems_, SizeIs(1)) << answer.head.status << answer.result.text;
    EXPECT_LT(imds_.requests, 1200);
  }
}

TEST_F(ImdsWatchTest, OneRefusedDocumentHidesNoOther) {
  imds_.documents[kTarget] = "Terminated";
  imds_.documents[kSpot] = "?";
  Run(absl::Seconds(4));
  EXPECT_THAT(notices_, SizeIs(1));
}

}  // namespace
}  // namespace millrace
