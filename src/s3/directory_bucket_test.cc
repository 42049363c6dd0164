// These tests are for directory buckets (S3 Express One Zone): sessions, and other differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "s3/copy_exchange.h"
#include "s3/delete_objects_exchange.h"
#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBucket[] = "data--usw2-az1--x-s3";

class DirectoryBucketTest : public ExchangeTest {
 protected:
  DirectoryBucketTest() { UseSessions(TestS3Config()); }

  void UseSessions(S3Config config) {
    context_.emplace(
        std::move(config), 1, CredentialsProvider::Fetch(),
        [this](const std::string& bucket, CredentialsProvider::Fetched done) {
          EXPECT_EQ(bucket, kBucket);
          const std::string number = std::to_string(++sessions_);
          done(ExpiringCredentials{{"session-" + number, "secret", "TOKEN-" + number}, now_ + life_}, now_);
        });
  }

  /// Makes an exchange, and runs it when there is a session.
  template <typename Result, typename Make>
  Result RunIn(ExchangeDriver::Store store, Make make) {
    Catcher<Result> catcher;
    const std::unique_ptr<S3Exchange> exchange = make(*context_, catcher.Callback());
    if (!exchange->TakeCredentials(now_)) {
      exchange->credentials_provider().Wait(now_,
                                            [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    }
    ExchangeDriver driver(std::move(store));
    driver.now = now_;
    driver.Run(*exchange);
    requests_ = std::move(driver.requests);
    return std::move(*catcher);
  }
  absl::StatusOr<ObjectDescription> HeadIn(ExchangeDriver::Store store) {
    return RunIn<absl::StatusOr<ObjectDescription>>(std::move(store), [](S3Context& context, auto done) {
      return std::make_unique<HeadExchange>(context, kBucket, "key", std::move(done));
    });
  }
  std::string Header(size_t request, const char* name) {
    return std::string(requests_[request].head.headers.Find(name).value_or(""));
  }

  absl::Time now_ = absl::FromUnixSeconds(1'767'225'600);
  absl::Duration life_ = absl::Minutes(5);
  int sessions_ = 0;
};

TEST_F(DirectoryBucketTest, RequestsAreSignedByTheSession) {
  ASSERT_TRUE(HeadIn(InTurn({kFound})).ok());
  EXPECT_EQ(Header(0, "host"), std::string(kBucket) + ".store.test:9000");
  EXPECT_EQ(requests_[0].head.target, "/key");
  EXPECT_EQ(Header(0, "x-amz-s3session-token"), "TOKEN-1");
  EXPECT_EQ(Header(0, "x-amz-security-token"), "");
  EXPECT_THAT(Header(0, "authorization"), AllOf(HasSubstr("Credential=session-1/20260101/us-east-1/s3express/"),
                                                HasSubstr("x-amz-s3session-token")));
}

TEST_F(DirectoryBucketTest, ASessionServesAllRequestsAndIsRenewedBeforeItEnds) {
  ASSERT_TRUE(HeadIn(InTurn({kFound})).ok());
  now_ += absl::Seconds(30);
  ASSERT_TRUE(HeadIn(InTurn({kFound})).ok());
  EXPECT_EQ(sessions_, 1);
  now_ += absl::Minutes(4);
  EXPECT_EQ(context_->Session(kBucket).Get(now_)->session_token, "TOKEN-1") << "it serves while the next one is made";
  ASSERT_TRUE(HeadIn(InTurn({kFound})).ok());
  EXPECT_EQ(Header(0, "x-amz-s3session-token"), "TOKEN-2");
  EXPECT_EQ(sessions_, 2);
}

TEST_F(DirectoryBucketTest, AnotherSessionIsMadeWhenTheStoreRejectsOne) {
  ASSERT_TRUE(HeadIn(InTurn({kFound})).ok());
  now_ += absl::Seconds(30);
  Catcher<absl::StatusOr<ObjectDescription>> catcher;
  HeadExchange exchange(*context_, kBucket, "key", catcher.Callback());
  EXPECT_EQ(exchange.Begin().kind, S3Step::Kind::kSend);
  ASSERT_TRUE(exchange.TakeCredentials(now_));
  exchange.Request(now_);
  exchange.OnHead({400, "", {}, std::nullopt});
  HttpResult refused;
  refused.text = "<Error><Code>ExpiredToken</Code></Error>";
  EXPECT_EQ(exchange.OnResult(std::move(refused), now_).kind, S3Step::Kind::kSend);
  ASSERT_TRUE(exchange.TakeCredentials(now_));
  EXPECT_EQ(exchange.Request(now_).head.headers.Find("x-amz-s3session-token"), "TOKEN-2");
  exchange.Abandon(absl::CancelledError("the test ends"));
  exchange.Finish();
}

TEST_F(DirectoryBucketTest, TheSessionIsMadeWithTheKeysOfTheSettings) {
  S3Config config = TestS3Config();
  config.endpoint_url = "";
  config.region = "us-west-2";
  config.credentials.session_token = "of-a-role";
  config.encryption = "aws:kms";
  UseSessions(config);
  const auto session = RunIn<absl::StatusOr<ExpiringCredentials>>(
      InTurn({{.status = 200,
               .headers = {},
               .body = "<CreateSessionResult><Credentials><SessionToken>T</SessionToken><SecretAccessKey>S"
                       "</SecretAccessKey><AccessKeyId>A</AccessKeyId><Expiration>2026-01-01T00:05:00Z</Expiration>"
                       "</Credentials></CreateSessionResult>"}}),
      [](S3Context& context, auto done) { return NewCreateSessionExchange(context, kBucket, std::move(done)); });
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->keys.access_key, "A");
  EXPECT_EQ(session->keys.session_token, "T");
  EXPECT_EQ(session->expires, now_ + absl::Minutes(5));
  EXPECT_EQ(requests_[0].endpoint.host, std::string(kBucket) + ".s3express-usw2-az1.us-west-2.amazonaws.com");
  EXPECT_EQ(requests_[0].head.target, "/?session=");
  EXPECT_THAT(Header(0, "authorization"), HasSubstr("Credential=test-key/20260101/us-west-2/s3express/"));
  EXPECT_EQ(Header(0, "x-amz-security-token"), "of-a-role");
  EXPECT_EQ(Header(0, "x-amz-s3session-token"), "");
  EXPECT_EQ(Header(0, "x-amz-server-side-encryption"), "aws:kms");
  EXPECT_EQ(sessions_, 0);
  // An answer without a session is refused in the end.
  const auto garbled = RunIn<absl::StatusOr<ExpiringCredentials>>(
      InTurn({{.status = 200, .headers = {}, .body = "<CreateSessionResult/>"}}),
      [](S3Context& context, auto done) { return NewCreateSessionExchange(context, kBucket, std::move(done)); });
  EXPECT_FALSE(garbled.ok());
}

TEST_F(DirectoryBucketTest, CopiesAreSignedByTheKeysOfTheSettings) {
  const auto copied = RunIn<absl::StatusOr<ObjectInfo>>(
      InTurn({{.status = 200, .headers = {}, .body = "<CopyObjectResult><ETag>\"e\"</ETag></CopyObjectResult>"}}),
      [](S3Context& context, auto done) {
        return std::make_unique<CopyExchange>(context, kBucket, "to", S3CopySource{kBucket, "from", 1, ""},
                                              std::nullopt, false, std::move(done));
      });
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_THAT(Header(0, "authorization"), HasSubstr("Credential=test-key/20260101/us-east-1/s3express/"));
  EXPECT_EQ(Header(0, "x-amz-s3session-token"), "");
  EXPECT_EQ(Header(0, "x-amz-copy-source"), std::string(kBucket) + "/from");
}

TEST_F(DirectoryBucketTest, ListingsNameFoldersAndNoStart) {
  const auto list = [this](ListOptions options) {
    return RunIn<absl::StatusOr<ListPage>>(
        InTurn({{.status = 200,
                 .headers = {},
                 .body = "<ListBucketResult><IsTruncated>false</IsTruncated>"
                         "<Contents><Key>a/train-2</Key><Size>1</Size></Contents>"
                         "<Contents><Key>a/test-1</Key><Size>1</Size></Contents>"
                         "<Contents><Key>a/train-1</Key><Size>1</Size></Contents></ListBucketResult>"}}),
        [&options](S3Context& context, auto done) {
          return NewListExchange(context, kBucket, std::move(options), std::move(done));
        });
  };
  const absl::StatusOr<ListPage> page =
      list({.prefix = "a/tr", .delimiter = "", .start_after = "a/train-0", .continuation = ""});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(requests_[0].head.target, AllOf(::testing::EndsWith("prefix=a%2F"), Not(HasSubstr("start-after"))));
  std::vector<std::string> keys;
  for (const ObjectInfo& object : page->objects) keys.push_back(object.key);
  EXPECT_THAT(keys, ElementsAre("a/train-1", "a/train-2"));
  ASSERT_TRUE(list({.prefix = "a", .delimiter = "", .start_after = "", .continuation = ""}).ok());
  EXPECT_THAT(requests_[0].head.target, Not(HasSubstr("prefix=")));
}

TEST_F(DirectoryBucketTest, UploadsAreListedByFolder) {
  const auto page = RunIn<absl::StatusOr<UploadPage>>(
      InTurn({{.status = 200,
               .headers = {},
               .body = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
                       "<Upload><Key>a/train</Key><UploadId>1</UploadId></Upload>"
                       "<Upload><Key>a/other</Key><UploadId>2</UploadId></Upload></ListMultipartUploadsResult>"}}),
      [](S3Context& context, auto done) {
        return NewListUploadsExchange(context, kBucket, "a/tr", {}, std::move(done));
      });
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->uploads.size(), 1u);
  EXPECT_EQ(page->uploads[0].key, "a/train");
  EXPECT_THAT(requests_[0].head.target, ::testing::EndsWith("prefix=a%2F"));
}

TEST_F(DirectoryBucketTest, ETagsAreNoMd5s) {
  const ScriptedAnswer found = {.status = 200,
                                .headers = Headers({{"Content-Length", "0"},
                                                    {"ETag", "\"d41d8cd98f00b204e9800998ecf8427e\""},
                                                    {"Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"}}),
                                .body = ""};
  EXPECT_TRUE(Describe(InTurn({found}))->info.checksum.has_value());
  EXPECT_FALSE(HeadIn(InTurn({found}))->info.checksum.has_value());
}

TEST_F(DirectoryBucketTest, DeleteObjectsHasACrcAndNoMd5) {
  RunIn<std::vector<absl::Status>>(InTurn({{.status = 200, .headers = {}, .body = "<DeleteResult></DeleteResult>"}}),
                                   [](S3Context& context, auto done) {
                                     return std::make_unique<DeleteObjectsExchange>(
                                         context, kBucket, std::vector<std::string>{"a"}, std::move(done));
                                   });
  EXPECT_EQ(Header(0, "content-md5"), "");
  EXPECT_NE(Header(0, "x-amz-checksum-crc32c"), "");
}

TEST_F(DirectoryBucketTest, UnsignedRequestsAreRefused) {
  S3Config config = TestS3Config();
  config.credentials = {};
  config.anonymous = true;
  UseSessions(config);
  EXPECT_THAT(std::string(HeadIn(InTurn({kFound})).status().message()), HasSubstr("unset MILLRACE_S3_ANONYMOUS"));
  EXPECT_TRUE(requests_.empty());
}

}  // namespace
}  // namespace millrace
