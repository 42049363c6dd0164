#include "s3/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "aws/settings.h"
#include "base/crypto.h"
#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- The core

TEST_F(ExchangeTest, WithoutCredentialsTheFirstRequestSaysWhatToDo) {
  S3Config config = TestS3Config();
  config.credentials = {};
  Use(config);
  const auto result = Head(InTurn({kFound}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("AWS_ACCESS_KEY_ID"), HasSubstr("MILLRACE_S3_ANONYMOUS")));
  EXPECT_TRUE(requests_.empty());
}

TEST_F(ExchangeTest, AnonymousRequestsAreUnsigned) {
  S3Config config = TestS3Config();
  config.credentials = {};
  config.anonymous = true;
  Use(config);
  ASSERT_TRUE(Put(InTurn({kStored})).ok());
  EXPECT_FALSE(requests_[0].head.headers.Has("authorization"));
  EXPECT_EQ(requests_[0].head.headers.Find("content-md5"), Base64Encode(Md5(AsBytes(body_))));
}

TEST_F(ExchangeTest, ABrokenEndpointIsSaidAtTheFirstRequest) {
  S3Config config = TestS3Config();
  config.endpoint_url = "nonsense";
  Use(config);
  EXPECT_EQ(Head(InTurn({kFound})).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExchangeTest, EveryAttemptIsSignedAnew) {
  ASSERT_TRUE(Head(InTurn({Error(503), Error(503), Error(503), Error(503), Error(503), Error(503), kFound})).ok());
  EXPECT_NE(requests_.front().head.headers.Find("x-amz-date"), requests_.back().head.headers.Find("x-amz-date"));
  EXPECT_EQ(context_->counters.head, 7u);
  EXPECT_EQ(context_->counters.retries, 6u);
}

TEST_F(ExchangeTest, RetryAfterIsHonoured) {
  ASSERT_TRUE(Head(InTurn({Error(503, "SlowDown", Headers({{"Retry-After", "17"}})), kFound})).ok());
  ASSERT_EQ(waits_.size(), 1u);
  EXPECT_GE(waits_[0], absl::Seconds(17));
}

TEST_F(ExchangeTest, MaxAttemptsOfOneMeansNoRetry) {
  S3Config config = TestS3Config();
  config.max_attempts = 1;
  Use(config);
  const auto result = Head(InTurn({Error(503), kFound}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("HEAD failed: "));
  EXPECT_EQ(requests_.size(), 1u);
}

// A server that waits for a TLS handshake ends the connection.
TEST_F(ExchangeTest, PlainHttpToAServerOfHttpsFailsSoonAndSaysSo) {
  S3Config config = TestS3Config();
  config.endpoint_url = "http://store:9000";
  for (const ScriptedAnswer& end : {Broken(HttpErrorKind::kReset), Broken(HttpErrorKind::kClosedEarly)}) {
    Use(config);
    const auto result = Head(InTurn({end}));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("https"), HasSubstr("AWS_ENDPOINT_URL=https://store:9000")));
    EXPECT_EQ(requests_.size(), 5u);
    // A server that has answered speaks http.
    Use(config);
    ASSERT_TRUE(Head(InTurn({kFound})).ok());
    ASSERT_TRUE(Head(InTurn({end, end, end, end, end, end, kFound})).ok());
  }
  Use(config);
  const auto alert = Head(InTurn({Broken(HttpErrorKind::kTls)}));
  EXPECT_THAT(std::string(alert.status().message()), HasSubstr("AWS_ENDPOINT_URL=https://store:9000"));
  EXPECT_EQ(requests_.size(), 1u);
  config.endpoint_url = "https://store:9000";
  Use(config);
  const auto no_tls = Head(InTurn({Broken(HttpErrorKind::kTls)}));
  EXPECT_THAT(std::string(no_tls.status().message()), AllOf(HasSubstr("use http://"), Not(HasSubstr("=https:"))));
  Use(config);
  EXPECT_TRUE(Head(InTurn({Broken(HttpErrorKind::kReset), Broken(HttpErrorKind::kReset), Broken(HttpErrorKind::kReset),
                           Broken(HttpErrorKind::kReset), Broken(HttpErrorKind::kReset), kFound}))
                  .ok());
}

// The store answers so until five minutes of the driver's time have passed.
TEST_F(ExchangeTest, AnOutageIsWaitedOut) {
  for (const ScriptedAnswer& away : {Broken(HttpErrorKind::kConnect), Broken(HttpErrorKind::kTimeout),
                                     Broken(HttpErrorKind::kClosedEarly), Error(502), Error(503), Error(504)}) {
    Use(TestS3Config());
    context_->outage.SetLimit(absl::Minutes(10));
    ASSERT_TRUE(Head(InTurn({kFound})).ok());
    size_t left = 290;  // one a second
    EXPECT_TRUE(Head([&](const HttpRequest&) { return left > 0 && left-- > 0 ? away : kFound; }).ok());
    const absl::Duration waited = std::accumulate(waits_.begin(), waits_.end(), absl::ZeroDuration());
    EXPECT_LT(waited, absl::Minutes(2)) << "the rest were turns";
    // The lessons of the outage are forgotten with it.
    EXPECT_EQ(context_->outage.TakeTurn(absl::Now()), absl::ZeroDuration());
  }
}

TEST_F(ExchangeTest, AnOutageBeyondTheLimitIsAnError) {
  context_->outage.SetLimit(absl::Minutes(2));
  ASSERT_TRUE(Head(InTurn({kFound})).ok());
  const auto result = Head(InTurn({Broken(HttpErrorKind::kConnect)}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("for longer than the limit"));
  EXPECT_GT(requests_.size(), 100u);
  EXPECT_LT(requests_.size(), 140u);
}

// Errors of the store itself are about one request: the others would wait for nothing.
TEST_F(ExchangeTest, ErrorsOfTheStoreAreNoOutage) {
  context_->outage.SetLimit(absl::Minutes(10));
  ASSERT_TRUE(Head(InTurn({kFound})).ok());
  EXPECT_FALSE(Head(InTurn({Error(500, "InternalError")})).ok());
  EXPECT_LE(requests_.size(), 50u);
}

TEST_F(ExchangeTest, TheNumberOfAttemptsThatAUserHasSetIsTheLimit) {
  for (const bool usual : {true, false}) {
    S3Config config = TestS3Config();
    config.max_attempts = 2;
    config.more_attempts_in_storms = usual;
    Use(config);
    ASSERT_TRUE(Head(InTurn({kFound})).ok());
    EXPECT_FALSE(Head(InTurn({Error(500, "InternalError")})).ok());
    EXPECT_THAT(requests_.size(), usual ? ::testing::Gt(2u) : ::testing::Matcher<size_t>(2u));
  }
}

TEST_F(ExchangeTest, AnEndpointThatWasNeverReachedIsGivenUpSoon) {
  const auto result = Head(InTurn({Broken(HttpErrorKind::kConnect)}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("check AWS_ENDPOINT_URL"));
  EXPECT_EQ(requests_.size(), 4u);
  // Once it has answered, it deserves a longer wait.
  ASSERT_TRUE(Head(InTurn({Broken(HttpErrorKind::kConnect), kFound})).ok());
  EXPECT_FALSE(Head(InTurn({Broken(HttpErrorKind::kConnect)})).ok());
  EXPECT_EQ(requests_.size(), 10u);
}

TEST_F(ExchangeTest, AStormUsesUpTheBudgetAndIsPaced) {
  // Others have used it up, and 1,000 retries more.
  const absl::Time now = ExchangeDriver(nullptr).now;
  for (int i = 0; i < 1000 + RetryBudget::kCapacity; ++i) context_->budget.Spend(now);
  ASSERT_TRUE(Head(InTurn({Error(503), kFound})).ok());
  ASSERT_EQ(waits_.size(), 1u);
  EXPECT_GT(waits_[0], absl::Seconds(1000 / RetryBudget::kPerSecond));
}

TEST_F(ExchangeTest, TheRegionIsLearntAndKept) {
  for (const ScriptedAnswer& redirect :
       {Error(301, "PermanentRedirect", Headers({{"x-amz-bucket-region", "eu-west-1"}})),
        ScriptedAnswer{.status = 400,
        .headers = {},
        .body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"},
        Error(400, "", Headers({{"x-amz-bucket-region", "eu-west-1"}})),
        Error(301, "", Headers({{"x-amz-bucket-region", "eu-west-1"}}))}) {
    Use(TestS3Config());
    const auto result = Put(InTurn({redirect, kStored}));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(waits_.empty());
    EXPECT_THAT(std::string(*requests_[0].head.headers.Find("authorization")), HasSubstr("/us-east-1/s3/"));
    EXPECT_THAT(std::string(*requests_[1].head.headers.Find("authorization")), HasSubstr("/eu-west-1/s3/"));
    ASSERT_TRUE(Head(InTurn({kFound})).ok());
    EXPECT_THAT(std::string(*requests_[0].head.headers.Find("authorization")), HasSubstr("/eu-west-1/s3/"));
  }
}

TEST_F(ExchangeTest, OnAwsTheRegionChangesTheHost) {
  S3Config config = TestS3Config();
  config.endpoint_url = "";
  Use(config);
  ASSERT_TRUE(Head(InTurn({Error(301, "", Headers({{"x-amz-bucket-region", "eu-west-1"}})), kFound})).ok());
  EXPECT_EQ(requests_[0].endpoint.host, "bucket.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(requests_[1].endpoint.host, "bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(requests_[1].head.headers.Find("host"), "bucket.s3.eu-west-1.amazonaws.com");
}

TEST_F(ExchangeTest, ARegionThatAnotherLearnedMeanwhileCounts) {
  Use(TestS3Config());
  int n = 0;
  const auto result = Put([&](const HttpRequest&) {
    if (n++ > 0) return kStored;
    EXPECT_TRUE(context_->LearnRegion("bucket", "eu-west-1"));
    return Error(301, "PermanentRedirect", Headers({{"x-amz-bucket-region", "eu-west-1"}}));
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(std::string(*requests_.back().head.headers.Find("authorization")), HasSubstr("/eu-west-1/s3/"));
}

TEST_F(ExchangeTest, RedirectsThatLeadNowhereEnd) {
  for (const char* region : {"", "us-east-1", "evil.example/"}) {
    Use(TestS3Config());
    EXPECT_EQ(Delete(InTurn({Error(301, "PermanentRedirect", Headers({{"x-amz-bucket-region", region}}))})).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(requests_.size(), 1u) << region;
  }
  Use(TestS3Config());
  int n = 0;
  const absl::Status status = Delete([&n](const HttpRequest&) {
    return Error(301, "PermanentRedirect", Headers({{"x-amz-bucket-region", "region-" + std::to_string(++n)}}));
  });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(requests_.size(), 4u);
}

TEST_F(ExchangeTest, AWrongClockIsCorrectedOnce) {
  // The driver starts at 2026-01-01 00:00; the store is an hour ahead.
  const ScriptedAnswer skewed =
      Error(403, "RequestTimeTooSkewed", Headers({{"Date", "Thu, 01 Jan 2026 01:00:00 GMT"}}));
  ASSERT_TRUE(Put(InTurn({skewed, kStored})).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-date"), "20260101T000000Z");
  EXPECT_EQ(requests_[1].head.headers.Find("x-amz-date"), "20260101T010000Z");
  ASSERT_TRUE(Put(InTurn({kStored})).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-date"), "20260101T010000Z");
  const auto stubborn = Put(InTurn({skewed}));
  EXPECT_EQ(stubborn.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(stubborn.status().message()), HasSubstr("clock"));
  EXPECT_EQ(requests_.size(), 2u);
  Use(TestS3Config());
  EXPECT_EQ(Put(InTurn({Error(403, "RequestTimeTooSkewed")})).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(requests_.size(), 1u);  // no Date, nothing to learn
}

TEST_F(ExchangeTest, PlainHttpDoesNotMoveTheClockByDays) {
  const ScriptedAnswer days = Error(403, "RequestTimeTooSkewed", Headers({{"Date", "Sun, 04 Jan 2026 00:00:00 GMT"}}));
  for (const auto& [endpoint, requests] : {std::pair("https://store.example:9000", 2u),
                                           {"http://store.example:9000", 1u},
                                           {"http://127.0.0.1:9000", 1u}}) {
    S3Config config = TestS3Config();
    config.endpoint_url = endpoint;
    Use(config);
    EXPECT_EQ(Put(InTurn({days, kStored})).ok(), requests == 2) << endpoint;
    EXPECT_EQ(requests_.size(), requests) << endpoint;
    EXPECT_EQ(requests_.back().head.headers.Find("x-amz-date"),
              requests == 2 ? "20260104T000000Z" : "20260101T000000Z");
  }
}

TEST_F(ExchangeTest, RejectedCredentialsAreRefreshedOnceForARequest) {
  const auto signed_by = [](const HttpRequest& request, std::string_view key) {
    return request.head.headers.Find("Authorization")->find("Credential=" + std::string(key) + "/") !=
           std::string::npos;
  };
  for (const auto& rejection : {std::pair(400, "ExpiredToken"), std::pair(403, "InvalidToken")}) {
    SCOPED_TRACE(rejection.second);
    int fetches = 0;
    S3Config config = TestS3Config();
    config.credentials = {"old", "secret", "token"};
    config.credential_environment = std::make_shared<const AwsEnvironment>();
    context_.emplace(std::move(config), 1, [&](CredentialsProvider::Fetched done) {
      const absl::Time now = ExchangeDriver(nullptr).now;
      done(ExpiringCredentials{{"new" + std::to_string(++fetches), "secret", "token"}, now + absl::Hours(1)}, now);
    });
    const ExchangeDriver::Store refuse = [&](const HttpRequest&) { return Error(rejection.first, rejection.second); };
    const ExchangeDriver::Store takes_new = [&](const HttpRequest& request) {
      return signed_by(request, "old") ? Error(rejection.first, rejection.second)
                                       : ScriptedAnswer{.body = "<ListBucketResult/>"};
    };
    const auto list = [](S3Context& context, auto done) {
      return NewListExchange(context, "bucket", ListOptions{}, std::move(done));
    };
    EXPECT_TRUE(Run<absl::StatusOr<ListPage>>(takes_new, list).ok());
    EXPECT_EQ(requests_.size(), 2u);
    EXPECT_TRUE(waits_.empty()) << "no failure of the store's, so no back-off";
    // They are new, and the store refuses them too: that is final.
    EXPECT_TRUE(absl::IsUnauthenticated(Run<absl::StatusOr<ListPage>>(refuse, list).status()));
    EXPECT_EQ(requests_.size(), 1u);
    EXPECT_EQ(fetches, 1);
  }
}

TEST_F(ExchangeTest, MessagesNameTheRequestAndAreOneShortLine) {
  const std::string text(5000, 'x');
  const absl::Status status = Delete(
      InTurn({{.status = 403,
               .headers = Headers({{"x-amz-request-id", "REQ1"}}),
               .body = "<Error><Code>AccessDenied</Code><Message>line one\nline two " + text + "</Message></Error>"}}));
  const std::string message(status.message());
  EXPECT_THAT(message, AllOf(HasSubstr("s3://bucket/key: DELETE failed: AccessDenied: line one line two"),
                             HasSubstr("request REQ1")));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_LT(message.size(), 600u);
}

TEST_F(ExchangeTest, CredentialsAreInNoMessage) {
  S3Config config = TestS3Config();
  config.credentials = {"key-id", "hush-secret", "hush-token"};
  Use(config);
  for (const ScriptedAnswer& answer :
       {Error(403, "SignatureDoesNotMatch"), Error(500), Broken(HttpErrorKind::kReset)}) {
    EXPECT_THAT(std::string(Delete(InTurn({answer})).message()),
                AllOf(Not(HasSubstr("hush")), Not(HasSubstr("Signature="))));
  }
}

TEST_F(ExchangeTest, ACancelledCallEndsTheExchange) {
  const auto result = Head(InTurn({Broken(HttpErrorKind::kCancelled), kFound}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(requests_.size(), 1u);
}

TEST_F(ExchangeTest, AnAbandonedExchangeSaysWhy) {
  Catcher<absl::StatusOr<ObjectDescription>> catcher;
  HeadExchange exchange(*context_, "bucket", "key", catcher.Callback());
  EXPECT_EQ(exchange.Begin().kind, S3Step::Kind::kSend);
  exchange.Abandon(absl::CancelledError("enough"));
  exchange.Finish();
  EXPECT_EQ(catcher->status(), absl::CancelledError("s3://bucket/key: enough"));
}

TEST_F(ExchangeTest, WhoPaysSaysSoInEveryRequest) {
  S3Config config = TestS3Config();
  config.requester_pays = true;
  Use(config);
  ASSERT_TRUE(Head(InTurn({Error(503), kFound})).ok());
  ASSERT_TRUE(Put(InTurn({kStored})).ok());
  ASSERT_FALSE(requests_.empty());
  for (const HttpRequest& request : requests_) {
    EXPECT_EQ(request.head.headers.Find("x-amz-request-payer"), "requester");
    EXPECT_THAT(std::string(*request.head.headers.Find("Authorization")), HasSubstr("x-amz-request-payer"));
  }
  Use(TestS3Config());
  ASSERT_TRUE(Head(InTurn({kFound})).ok());
  EXPECT_FALSE(requests_[0].head.headers.Has("x-amz-request-payer"));
}

// ---- HEAD

TEST_F(ExchangeTest, HeadReadsTheHeaders) {
  const auto info = Head(InTurn({kFound}));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->key, "key");
  EXPECT_EQ(info->size, 42u);
  EXPECT_EQ(info->etag, "abc");
  EXPECT_EQ(info->modified_ms, 784111777000);
}

TEST_F(ExchangeTest, HeadOfWhatIsNotThere) {
  EXPECT_EQ(Head(InTurn({Error(404)})).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ExchangeTest, HeadDoesWithoutTheChecksumOfWhatMayNotBeDecrypted) {
  const auto info = Head([this](const HttpRequest& request) {
    return request.head.headers.Has("x-amz-checksum-mode") ? Error(403) : kFound;
  });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->size, 42u);
  EXPECT_EQ(requests_.size(), 2u);
}

TEST_F(ExchangeTest, HeadAsksByGetWhyItWasRefused) {
  const auto result = Head([](const HttpRequest& request) {
    return request.head.method == "HEAD" ? Error(403) : Error(403, "InvalidAccessKeyId");
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(requests_.size(), 3u);  // the second HEAD does not ask for the checksum
  // If GET is allowed and HEAD is not, the answer to GET will do.
  const auto info = Head([](const HttpRequest& request) {
    if (request.head.method == "HEAD") return Error(403);
    return ScriptedAnswer{
        .status = 206, .headers = Headers({{"Content-Range", "bytes 0-0/1234"}, {"ETag", "\"e\""}}), .body = "x"};
  });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->size, 1234u);
}

TEST_F(ExchangeTest, HeadWithoutALengthIsNoAnswer) {
  ScriptedAnswer answer = kFound;
  answer.has_length = false;
  EXPECT_EQ(Head(InTurn({answer})).status().code(), absl::StatusCode::kUnavailable);
}

// Memory and files would be made for it.
TEST_F(ExchangeTest, HeadBelievesNoSizeThatNoStoreHas) {
  for (const std::string bytes : {"70368744177665", "4611686018427387904", "18446744073709551615"}) {
    ScriptedAnswer answer = kFound;
    answer.headers = Headers({{"Content-Length", bytes}});
    const auto info = Head(InTurn({answer}));
    EXPECT_EQ(info.status().code(), absl::StatusCode::kDataLoss) << info.status();
    EXPECT_THAT(std::string(info.status().message()), AllOf(HasSubstr("s3://bucket/key"), HasSubstr(bytes)));
    EXPECT_EQ(requests_.size(), 1u);
  }
}

// ---- DELETE

TEST_F(ExchangeTest, DeleteOfAnythingThatIsGoneSucceeds) {
  EXPECT_TRUE(Delete(InTurn({{.status = 204, .headers = {}, .body = ""}})).ok());
  EXPECT_EQ(requests_[0].head.method, "DELETE");
  EXPECT_EQ(requests_[0].head.target, "/bucket/key");
  EXPECT_TRUE(Delete(InTurn({Error(404, "NoSuchKey")})).ok());
  EXPECT_EQ(Delete(InTurn({Error(404, "NoSuchBucket")})).code(), absl::StatusCode::kNotFound);
}

// ---- LIST

const ScriptedAnswer kListing = {.status = 200,
                                 .headers = {},
                                 .body =
                                     "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</"
                                     "NextContinuationToken><Contents><Key>a b/a</Key><Size>1</Size>"
                                     "</Contents></ListBucketResult>"};

TEST_F(ExchangeTest, ListAsksForOnePage) {
  const auto page =
      List(InTurn({kListing}), {.prefix = "a b/", .delimiter = "/", .start_after = "x+y", .max_keys = 5000});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->objects.at(0).key, "a b/a");
  EXPECT_EQ(page->continuation, "t");
  EXPECT_EQ(requests_[0].head.target,
            "/bucket?list-type=2&encoding-type=url&max-keys=1000&prefix=a%20b%2F&delimiter=%2F&start-after=x%2By");
  ASSERT_TRUE(List(InTurn({kListing}), {.start_after = "x", .continuation = "1/+="}).ok());
  EXPECT_EQ(requests_[0].head.target,
            "/bucket?list-type=2&encoding-type=url&max-keys=1000&continuation-token=1%2F%2B%3D");
  EXPECT_EQ(context_->counters.list, 2u);
}

// A recursive copy or removal would take them for what is below the prefix.
TEST_F(ExchangeTest, ListRefusesNamesOutsideThePrefix) {
  for (const std::string entry :
       {"<Contents><Key>k/a</Key><Size>1</Size></Contents><Contents><Key>other/secret</Key><Size>1</Size></Contents>",
        "<CommonPrefixes><Prefix>other/secret/</Prefix></CommonPrefixes>"}) {
    const ScriptedAnswer answer = {
        .status = 200, .headers = {}, .body = "<ListBucketResult>" + entry + "</ListBucketResult>"};
    const auto page = List(InTurn({answer}), {.prefix = "k/", .delimiter = "/"});
    EXPECT_EQ(page.status().code(), absl::StatusCode::kDataLoss) << page.status();
    EXPECT_THAT(std::string(page.status().message()), AllOf(HasSubstr("\"other/secret"), HasSubstr("\"k/\"")));
    EXPECT_EQ(requests_.size(), 1u);
    EXPECT_TRUE(List(InTurn({answer}), {.delimiter = "/"}).ok());
  }
}

TEST_F(ExchangeTest, ListedFoldersLieBelowThePrefix) {
  const auto list = [this](const std::string& folder) {
    return List(InTurn({{.status = 200,
                         .headers = {},
                         .body = "<ListBucketResult><CommonPrefixes><Prefix>" + folder +
                                 "</Prefix></CommonPrefixes></ListBucketResult>"}}),
                {.prefix = "k/", .delimiter = "/"});
  };
  EXPECT_TRUE(list("k/a/").ok());
  for (const char* folder : {"", "k", "k/", "k/a", "K/a/"}) {
    const auto page = list(folder);
    EXPECT_EQ(page.status().code(), absl::StatusCode::kDataLoss) << folder;
    EXPECT_THAT(std::string(page.status().message()), HasSubstr("\"" + std::string(folder) + "\""));
  }
}

TEST_F(ExchangeTest, ListBelievesNoSizeThatNoStoreHas) {
  for (const std::string bytes : {"70368744177665", "9223372036854775808", "18446744073709551615"}) {
    const auto page = List(InTurn({{.status = 200,
                                    .headers = {},
                                    .body = "<ListBucketResult><Contents><Key>k</Key><Size>" + bytes +
                                            "</Size></Contents></ListBucketResult>"}}));
    EXPECT_EQ(page.status().code(), absl::StatusCode::kDataLoss) << page.status();
    EXPECT_THAT(std::string(page.status().message()), AllOf(HasSubstr("k: "), HasSubstr(bytes)));
  }
}

TEST_F(ExchangeTest, ListErrors) {
  EXPECT_EQ(List(InTurn({Error(404, "NoSuchBucket")})).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(List(InTurn({kListing}), {.max_keys = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(List(InTurn({Error(200, "InternalError"), kListing})).ok());
  // A server that does not speak S3 at all is not asked ten times.
  const auto page = List(InTurn({{.status = 200, .headers = {}, .body = "<html>It works!</html>"}}));
  EXPECT_EQ(page.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(page.status().message()), HasSubstr("check AWS_ENDPOINT_URL"));
  EXPECT_EQ(requests_.size(), 3u);
}

TEST_F(ExchangeTest, AMissingBucketIsSaidOnceAndByItsName) {
  const std::string message =
      "the bucket does not exist at http://store.test:9000 (NoSuchBucket, HTTP 404); check its name and "
      "AWS_ENDPOINT_URL, or create it first";
  const ScriptedAnswer missing = Error(404, "NoSuchBucket");
  EXPECT_EQ(std::string(List(InTurn({missing})).status().message()), "s3://bucket: LIST failed: " + message);
  EXPECT_EQ(std::string(Put(InTurn({missing})).status().message()), "s3://bucket: PUT failed: " + message);
}

}  // namespace
}  // namespace millrace
