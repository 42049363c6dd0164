#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "s3/exchange.h"
#include "s3/object_exchanges.h"
#include "s3/testing/exchange_driver.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DelayWarningTest : public ::testing::Test {
 protected:
  // Returns the log of a HEAD that is throttled `failures` times, for 3 s each.
  std::string Head(int failures) {
    ExchangeDriver driver([&failures](const HttpRequest&) -> ScriptedAnswer {
      ScriptedAnswer answer;
      if (failures-- > 0) {
        answer.status = 503;
        answer.body = "<Error><Code>SlowDown</Code></Error>";
        answer.headers.Add("Retry-After", "3");
      } else {
        answer.headers.Add("Content-Length", "42");
        answer.headers.Add("ETag", "\"abc\"");
      }
      return answer;
    });
    driver.now = now_;
    HeadExchange exchange(context_, "bucket", "key",
                          [](const absl::StatusOr<ObjectDescription>& object) { EXPECT_TRUE(object.ok()); });
    ::testing::internal::CaptureStderr();
    driver.Run(exchange);
    now_ = driver.now;
    return ::testing::internal::GetCapturedStderr();
  }

  S3Context context_{TestS3Config(), 1};
  absl::Time now_ = absl::FromUnixSeconds(1'767'225'600);
};

TEST_F(DelayWarningTest, AnOperationThatFailsForSecondsIsToldOfOnce) {
  EXPECT_THAT(Head(0), IsEmpty());
  EXPECT_THAT(Head(1), IsEmpty());
  const std::string said = Head(6);
  EXPECT_THAT(said, AllOf(HasSubstr("warning"), HasSubstr("s3://bucket/key: HEAD has failed 2 times"),
                          HasSubstr("HTTP 503"), Not(HasSubstr("failed 3"))));
}

TEST_F(DelayWarningTest, OthersAreToldOfTenSecondsLater) {
  EXPECT_THAT(Head(2), HasSubstr("s3://bucket/key"));  // after 3 s, then 3 s more
  EXPECT_THAT(Head(2), IsEmpty());
  now_ += absl::Seconds(10);
  EXPECT_THAT(Head(2), HasSubstr("s3://bucket/key"));
}

}  // namespace
}  // namespace millrace
