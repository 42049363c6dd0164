#include "job/group_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "base/crypto.h"
#include "base/hex.h"
#include "net/text_answer.h"
#include "service/token_proof.h"

namespace millrace {
namespace {

using std::chrono::minutes;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr minutes kHang{3};

/// Provides texts that threads say, and verdicts that they wake the test for.
class Heard {
 public:
  std::function<void(const std::string&)> say() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      texts_.push_back(text);
      changed_.notify_all();
    };
  }
  std::function<void()> wake() {
    return [this] {
      const std::lock_guard lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    };
  }
  bool WaitForText(const std::string& part) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHang, [&] {
      for (const std::string& text : texts_) {
        if (text.find(part) != std::string::npos) return true;
      }
      return false;
    });
  }
  bool WaitForWake() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHang, [this] { return woken_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
  bool woken_ = false;
};

class GroupLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started =
        GroupCoordinator::Start(loops_, "127.0.0.1", 0, "a secret of the job",
                                {.main = "train", .main_hosts = 1, .groups = {"data", "train"}}, heard_.say());
    ASSERT_TRUE(started.ok()) << started.status();
    coordinator_ = std::move(*started);
  }
  GroupMember::Options Member(const std::string& group, Heard& heard) {
    return {.coordinator = {.host = "127.0.0.1", .port = coordinator_->port()},
            .token = "a secret of the job",
            .host = group + "-1",
            .group = group,
            .is_main = group == "train",
            .say = heard.say(),
            .wake = heard.wake()};
  }
  /// The coordinator's answer to any request.
  std::pair<int, std::string> Post(const std::string& method, const std::string& token, const std::string& body) {
    HttpClient client(loops_, {});
    TextRequest request{.endpoint = {.host = "127.0.0.1", .port = coordinator_->port()},
                        .head = {method, "/millrace/group", {}},
                        .body = body,
                        .max_text = 8192};
    request.head.headers.Add("Host", "coordinator");
    if (!token.empty()) {
      TokenKey key(token, "group");
      TextRequest challenge{.endpoint = request.endpoint, .head = {"GET", "/millrace/challenge", {}}};
      challenge.head.headers.Add("Millrace-Nonce", key.nonce());
      EXPECT_TRUE(key.Accept(AskForText(client, loops_.Next(), std::move(challenge)).get().result.text));
      const std::string digest = HexEncode(Sha256(AsBytes(body)));
      request.head.headers.Add("Millrace-Digest", digest);
      request.head.headers.Add("Millrace-Proof", key.Prove(method + "\n/millrace/group\n" + digest));
    }
    const TextAnswer answer = AskForText(client, loops_.Next(), std::move(request)).get();
    return {answer.head.status, answer.result.text};
  }

  EventLoops loops_{1};
  Heard heard_;
  std::unique_ptr<GroupCoordinator> coordinator_;
};

TEST_F(GroupLinkTest, AllHostsHearHowTheJobEnds) {
  Heard data;
  Heard train;
  GroupMember serves(loops_, Member("data", data));
  GroupMember trains(loops_, Member("train", train));
  ASSERT_TRUE(data.WaitForText("has answered"));
  ASSERT_TRUE(train.WaitForText("has answered"));
  EXPECT_FALSE(coordinator_->AllKnow());
  trains.Report(HostState::kSucceeded, 0);
  ASSERT_TRUE(data.WaitForWake());
  ASSERT_TRUE(train.WaitForWake());
  ASSERT_TRUE(serves.verdict());
  EXPECT_EQ(serves.verdict()->status, 0);
  EXPECT_TRUE(coordinator_->AllKnow());
}

TEST_F(GroupLinkTest, TheStatusOfAHostThatFailsIsThatOfTheJob) {
  Heard data;
  Heard train;
  GroupMember serves(loops_, Member("data", data));
  GroupMember trains(loops_, Member("train", train));
  ASSERT_TRUE(train.WaitForText("has answered"));
  serves.Leave(HostState::kFailed, 9);
  ASSERT_TRUE(train.WaitForWake());
  EXPECT_EQ(trains.verdict()->status, 9);
  EXPECT_THAT(trains.verdict()->why, HasSubstr("data-1"));
}

TEST_F(GroupLinkTest, AHostWithAnotherSecretOrGroupIsRefused) {
  Heard stranger;
  GroupMember::Options options = Member("data", stranger);
  options.token = "another secret";
  GroupMember member(loops_, options);
  ASSERT_TRUE(stranger.WaitForWake());
  EXPECT_EQ(member.verdict()->status, 1);
  EXPECT_THAT(member.verdict()->why, HasSubstr("the coordinator has another token"));
  Heard other;
  GroupMember outside(loops_, Member("nobody", other));
  ASSERT_TRUE(other.WaitForWake());
  EXPECT_THAT(outside.verdict()->why, HasSubstr("no such group"));
}

TEST_F(GroupLinkTest, ReportsThatMakeNoSenseAreRefused) {
  const std::string token = "a secret of the job";
  EXPECT_EQ(Post("POST", "", "{}").first, 401);
  EXPECT_EQ(Post("GET", token, "").first, 400);
  for (const char* body : {"", "[]", "{}", "{", R"({"host": "h", "group": "data", "state": "sleeps"})",
                           R"({"host": "", "group": "data", "state": "runs"})", R"({"host": 1, "state": "runs"})"}) {
    EXPECT_EQ(Post("POST", token, body).first, 400) << body;
  }
  EXPECT_EQ(Post("POST", token, std::string(9000, ' ')).first, 400);
  const auto [status, text] = Post("POST", token, R"({"host": "h", "group": "data", "state": "runs"})");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(text, R"({"end":false})");
}

TEST_F(GroupLinkTest, ACoordinatorThatIsGoneIsLost) {
  Heard data;
  GroupMember::Options options = Member("data", data);
  options.lost_after = std::chrono::milliseconds(1);
  options.lost_status = 76;
  GroupMember member(loops_, options);
  ASSERT_TRUE(data.WaitForText("has answered"));
  coordinator_.reset();
  ASSERT_TRUE(data.WaitForWake());
  EXPECT_EQ(member.verdict()->status, 76);
}

}  // namespace
}  // namespace millrace
