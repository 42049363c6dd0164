#include "aws/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aws/credential_chain.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

const absl::Time kStart = absl::FromUnixSeconds(1'767'225'600);
constexpr char kCanary[] = "canary-secret";

/// Holds a provider whose fetches the test answers.
class CredentialsTest : public ::testing::Test {
 protected:
  std::string Key() {
    const CredentialsProvider::Shared keys = provider_->Get(now_);
    return keys ? keys->access_key : "";
  }
  void Answer(absl::StatusOr<ExpiringCredentials> result) {
    CredentialsProvider::Fetched done = std::move(*done_);
    done_.reset();
    done(std::move(result), now_);
  }
  void AnswerKey(const std::string& key, absl::Duration life) {
    Answer(ExpiringCredentials{{key, kCanary, "token"}, now_ + life});
  }
  void Use(Credentials first, uint64_t jitter_key = 1) {
    provider_ = std::make_unique<CredentialsProvider>(
        std::move(first),
        [this](CredentialsProvider::Fetched done) {
          EXPECT_FALSE(done_.has_value()) << "two fetches at a time";
          ++fetches_;
          done_ = std::move(done);
        },
        jitter_key);
  }
  CredentialsProvider::Waiter Count() {
    return [this](const absl::Status& status) { outcomes_.push_back(status); };
  }

  absl::Time now_ = kStart;
  std::optional<CredentialsProvider::Fetched> done_;
  int fetches_ = 0;
  std::vector<absl::Status> outcomes_;
  std::unique_ptr<CredentialsProvider> provider_;
};

TEST_F(CredentialsTest, FixedKeysNeverChange) {
  CredentialsProvider provider({"AK", "SK", ""}, nullptr, 1);
  const auto keys = provider.Get(kStart);
  EXPECT_EQ(keys->access_key, "AK");
  EXPECT_EQ(keys.use_count(), 0) << "a count that threads share";
  EXPECT_FALSE(provider.Reject(keys, kStart));
  EXPECT_EQ(provider.Get(absl::InfiniteFuture()), keys);
}

TEST_F(CredentialsTest, OneFetchForAllWaiters) {
  Use({});
  EXPECT_EQ(fetches_, 0) << "before anybody asks";
  EXPECT_EQ(Key(), "");
  for (int i = 0; i < 100; ++i) provider_->Wait(now_, Count());
  EXPECT_EQ(fetches_, 1);
  EXPECT_TRUE(outcomes_.empty());
  AnswerKey("A", absl::Hours(1));
  EXPECT_EQ(outcomes_.size(), 100u);
  for (const absl::Status& status : outcomes_) EXPECT_TRUE(status.ok());
  EXPECT_EQ(Key(), "A");
  provider_->Wait(now_, Count());  // came late
  EXPECT_EQ(outcomes_.size(), 101u);
  EXPECT_EQ(fetches_, 1);
}

TEST_F(CredentialsTest, RefreshedAheadOfTheEndWhileTheOldServe) {
  std::set<int64_t> moments;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    now_ = kStart;
    fetches_ = 0;
    Use({}, seed);
    provider_->Wait(now_, Count());
    AnswerKey("A", absl::Hours(1));
    const absl::Time end = now_ + absl::Hours(1);
    while (fetches_ == 1) {
      now_ += absl::Seconds(1);
      ASSERT_LT(now_, end);
      ASSERT_EQ(Key(), "A");
    }
    moments.insert(absl::ToInt64Seconds(end - now_));
    EXPECT_THAT(end - now_, AllOf(Ge(absl::Minutes(5) - absl::Seconds(1)), Le(absl::Minutes(10))));
    EXPECT_EQ(Key(), "A") << "while new ones are on their way";
    EXPECT_EQ(fetches_, 2);
    AnswerKey("B", absl::Hours(1));
    EXPECT_EQ(Key(), "B");
  }
  EXPECT_GT(moments.size(), 30u) << "many processes must not march in step";
}

TEST_F(CredentialsTest, WhenTheSourceIsAwayTheOldServeOn) {
  Use({});
  provider_->Wait(now_, Count());
  AnswerKey("A", absl::Hours(1));
  const absl::Time end = now_ + absl::Hours(1);
  now_ = end - absl::Minutes(4);
  ::testing::internal::CaptureStderr();
  while (now_ < end) {
    EXPECT_EQ(Key(), "A");
    if (done_) Answer(absl::UnavailableError("STS is down"));
    now_ += absl::Seconds(1);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("STS is down"), Not(HasSubstr(kCanary))));
  EXPECT_THAT(fetches_, AllOf(Ge(6), Le(40))) << "tried again, but not at every request";
  // They have ended, and may serve all the same.
  for (const absl::Status& outage : {absl::UnavailableError("STS is down"), absl::DeadlineExceededError("STS is slow"),
                                     absl::UnauthenticatedError(kNoCredentials.data())}) {
    now_ += absl::Minutes(11);
    EXPECT_EQ(Key(), "");
    provider_->Wait(now_, Count());
    Answer(outage);
    EXPECT_TRUE(outcomes_.back().ok()) << outcomes_.back();
    EXPECT_EQ(Key(), "A");
  }
  // A refusal ends that.
  now_ += absl::Minutes(11);
  const absl::Status refusal = absl::PermissionDeniedError("the role is gone");
  provider_->Wait(now_, Count());
  Answer(refusal);
  EXPECT_EQ(outcomes_.back(), refusal);
  EXPECT_EQ(Key(), "");
  now_ += CredentialsProvider::kFailureLife;
  provider_->Wait(now_, Count());
  Answer(refusal);
  // A failure answers for a moment, then it is tried again.
  const int before = fetches_;
  provider_->Wait(now_, Count());
  EXPECT_EQ(outcomes_.back(), refusal);
  EXPECT_EQ(fetches_, before);
  now_ += CredentialsProvider::kFailureLife;
  provider_->Wait(now_, Count());
  EXPECT_EQ(fetches_, before + 1);
  AnswerKey("B", absl::Hours(1));
  EXPECT_TRUE(outcomes_.back().ok());
  EXPECT_EQ(Key(), "B");
}

TEST_F(CredentialsTest, ShortLivesDoNotMakeAStorm) {
  Use({});
  provider_->Wait(now_, Count());
  AnswerKey("A", absl::Minutes(2));  // less than the lead
  for (int i = 0; i < 25; ++i) {
    EXPECT_EQ(Key(), "A");
    now_ += absl::Seconds(1);
  }
  EXPECT_EQ(fetches_, 1);
  now_ += absl::Seconds(10);
  EXPECT_EQ(Key(), "A");
  EXPECT_EQ(fetches_, 2);
}

TEST_F(CredentialsTest, RejectedOnesAreFetchedAnewOnce) {
  Use({"static", kCanary, ""});
  EXPECT_EQ(Key(), "static");
  EXPECT_EQ(fetches_, 0);
  const auto old = provider_->Get(now_);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(provider_->Reject(old, now_));
  EXPECT_EQ(fetches_, 1);
  EXPECT_EQ(Key(), "");
  provider_->Wait(now_, Count());
  AnswerKey("new", absl::Hours(1));
  EXPECT_TRUE(outcomes_.back().ok());
  EXPECT_EQ(Key(), "new");
  // An answer to a request with the old ones comes late: the new ones stay.
  EXPECT_TRUE(provider_->Reject(old, now_));
  EXPECT_EQ(Key(), "new");
  EXPECT_EQ(fetches_, 1);
  // There are no better credentials than those that were fetched just now.
  EXPECT_FALSE(provider_->Reject(provider_->Get(now_), now_));
  now_ += CredentialsProvider::kMinAge;
  EXPECT_TRUE(provider_->Reject(provider_->Get(now_), now_));
  EXPECT_EQ(fetches_, 2);
}

TEST_F(CredentialsTest, WhatHasEndedAlreadyIsAnError) {
  Use({});
  provider_->Wait(now_, Count());
  AnswerKey("A", absl::ZeroDuration());
  EXPECT_TRUE(absl::IsUnauthenticated(outcomes_.back()));
}

}  // namespace
}  // namespace millrace
