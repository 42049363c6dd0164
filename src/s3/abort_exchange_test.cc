#include "s3/abort_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AbortExchangeTest : public ExchangeTest {
 protected:
  absl::Status Abort(ExchangeDriver::Store store, std::string upload_id = "an/id") {
    const absl::Status status = Run<absl::Status>(std::move(store), [&](S3Context& context, auto done) {
      return std::make_unique<AbortExchange>(context, "bucket", "key", upload_id, std::move(done));
    });
    asked_.clear();
    for (const HttpRequest& request : requests_) asked_.push_back(request.head.method + " " + request.head.target);
    return status;
  }

  static constexpr char kDelete[] = "DELETE /bucket/key?uploadId=an%2Fid";
  static constexpr char kList[] = "GET /bucket/key?max-parts=1&uploadId=an%2Fid";
  const ScriptedAnswer kAborted = {.status = 204, .headers = {}, .body = ""};
  const ScriptedAnswer kGone = Error(404, "NoSuchUpload");
  const ScriptedAnswer kNone = {.status = 200, .headers = {}, .body = "<ListPartsResult></ListPartsResult>"};
  const ScriptedAnswer kLeft = {
      .status = 200,
      .headers = {},
      .body = "<ListPartsResult><Part><PartNumber>7</PartNumber><ETag>\"e\"</ETag></Part></ListPartsResult>"};
  std::vector<std::string> asked_;
};

TEST_F(AbortExchangeTest, LooksWhetherAnythingIsLeft) {
  for (const ScriptedAnswer& clean : {kGone, kNone}) {
    EXPECT_TRUE(Abort(InTurn({kAborted, clean})).ok());
    EXPECT_THAT(asked_, ElementsAre(kDelete, kList));
  }
  EXPECT_TRUE(Abort(InTurn({kGone})).ok());
  EXPECT_THAT(asked_, ElementsAre(kDelete)) << "nothing to abort, nothing to list";
}

TEST_F(AbortExchangeTest, PartsThatCameAfterwardsAreAborted) {
  EXPECT_TRUE(Abort(InTurn({kAborted, kLeft, kAborted, kLeft, kAborted, kGone})).ok());
  EXPECT_THAT(asked_, ElementsAre(kDelete, kList, kDelete, kList, kDelete, kList));
  EXPECT_EQ(waits_.size(), 2u) << "they may need a moment";
}

TEST_F(AbortExchangeTest, DoesNotGoOnForEver) {
  S3Config config = TestS3Config();
  for (const int attempts : {1, 10}) {
    config.max_attempts = attempts;
    Use(config);
    int requests = 0;
    const absl::Status status = Abort([&](const HttpRequest&) { return ++requests % 2 == 1 ? kAborted : kLeft; });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("AbortIncompleteMultipartUpload"));
    EXPECT_EQ(requests, 10);
  }
}

TEST_F(AbortExchangeTest, BothRequestsAreTriedAgain) {
  EXPECT_TRUE(
      Abort(InTurn({Error(503), Broken(HttpErrorKind::kReset), kAborted, Error(500), Error(503, "SlowDown"), kGone}))
          .ok());
  EXPECT_THAT(asked_, ElementsAre(kDelete, kDelete, kDelete, kList, kList, kList));
  EXPECT_EQ(Abort(InTurn({Error(503)})).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Abort(InTurn({kAborted, Error(503)})).code(), absl::StatusCode::kUnavailable) << "not known to be clean";
}

TEST_F(AbortExchangeTest, WhoMayNotListHasAbortedAllTheSame) {
  for (const ScriptedAnswer& refused :
       {Error(403, "AccessDenied"), Error(501, "NotImplemented"), Error(400, "InvalidArgument"),
        ScriptedAnswer{.status = 200, .headers = {}, .body = "?"}}) {
    EXPECT_TRUE(Abort(InTurn({kAborted, refused})).ok());
    EXPECT_EQ(asked_.size(), 2u);
  }
  EXPECT_EQ(Abort(InTurn({Error(403, "AccessDenied")})).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Abort(InTurn({Error(404, "NoSuchBucket")})).code(), absl::StatusCode::kNotFound);
}

TEST_F(AbortExchangeTest, WithoutAnIdItWouldDeleteTheObject) {
  EXPECT_EQ(Abort(InTurn({kAborted}), "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(requests_, ::testing::IsEmpty());
}

}  // namespace
}  // namespace millrace
