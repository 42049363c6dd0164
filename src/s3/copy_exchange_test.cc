#include "s3/copy_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aws/sigv4.h"
#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CopyExchangeTest : public ExchangeTest {
 protected:
  absl::StatusOr<ObjectInfo> Copy(ExchangeDriver::Store store, std::optional<CopyExchange::Part> part = std::nullopt,
                                  bool only_if_absent = false) {
    return Run<absl::StatusOr<ObjectInfo>>(std::move(store), [&](S3Context& context, auto done) {
      return std::make_unique<CopyExchange>(context, "bucket", "key", from_, part, only_if_absent, std::move(done));
    });
  }
  std::string Header(size_t request, std::string_view name) {
    return std::string(requests_.at(request).head.headers.Find(name).value_or("(none)"));
  }

  S3CopySource from_{.bucket = "source", .key = "folder/object", .size = 42, .etag = "tag"};
  // AWS says 200, then spaces until it knows.
  const ScriptedAnswer kCopied = {.status = 200,
                                  .headers = {},
                                  .body =
                                      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n  \n \n<CopyObjectResult "
                                      "xmlns=\"x\"><LastModified>now</LastModified>"
                                      "<ETag>&quot;copied&quot;</ETag></CopyObjectResult>"};
};

TEST_F(CopyExchangeTest, NamesTheSourceAndItsVersion) {
  const auto info = Copy(InTurn({kCopied}));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->etag, "copied");
  EXPECT_EQ(info->size, 42u);
  EXPECT_EQ(info->key, "key");
  EXPECT_EQ(requests_[0].head.method, "PUT");
  EXPECT_EQ(requests_[0].head.target, "/bucket/key");
  EXPECT_EQ(Header(0, "x-amz-copy-source"), "source/folder/object");
  EXPECT_EQ(Header(0, "x-amz-copy-source-if-match"), "\"tag\"");
  EXPECT_EQ(Header(0, "x-amz-copy-source-range"), "(none)");
  EXPECT_THAT(Header(0, "Authorization"), HasSubstr("x-amz-copy-source;x-amz-copy-source-if-match"));
  EXPECT_TRUE(requests_[0].body.empty());
  from_.etag.clear();
  ASSERT_TRUE(Copy(InTurn({kCopied})).ok());
  EXPECT_EQ(Header(0, "x-amz-copy-source-if-match"), "(none)");
}

TEST_F(CopyExchangeTest, AnyKeyCanBeASource) {
  std::string every;
  for (int c = 1; c < 256; ++c) every.push_back(static_cast<char>(c));
  for (const std::string& key :
       {every, std::string("/a//b/./../"), std::string("a?versionId=b"), std::string("a+b c%2F")}) {
    from_.key = key;
    ASSERT_TRUE(Copy(InTurn({kCopied})).ok());
    const std::string sent = Header(0, "x-amz-copy-source");
    EXPECT_EQ(sent.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%/"), sent.npos)
        << sent;
    EXPECT_EQ(UriDecode(sent), "source/" + key);
  }
  from_.key = "a?versionId=b/+";
  ASSERT_TRUE(Copy(InTurn({kCopied})).ok());
  EXPECT_EQ(Header(0, "x-amz-copy-source"), "source/a%3FversionId%3Db/%2B");
}

TEST_F(CopyExchangeTest, AnErrorWithin200IsAnErrorAndTriedAgain) {
  const ScriptedAnswer failed = {
      .status = 200, .headers = {}, .body = "<?xml version=\"1.0\"?>\n   \n<Error><Code>InternalError</Code></Error>"};
  ASSERT_TRUE(Copy(InTurn({failed, Error(200, "SlowDown"), Broken(HttpErrorKind::kReset), kCopied})).ok());
  EXPECT_EQ(requests_.size(), 4u);
  EXPECT_EQ(waits_.size(), 3u);
  EXPECT_EQ(Header(3, "x-amz-copy-source-if-match"), "\"tag\"");
  const auto never = Copy(InTurn({failed}));
  EXPECT_EQ(never.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(never.status().message()),
              AllOf(HasSubstr("s3://bucket/key: CopyObject failed"), HasSubstr("InternalError")));
}

TEST_F(CopyExchangeTest, AnAnswerWithoutAnETagIsNoCopy) {
  // A store that takes the request for a PUT of nothing answers so.
  for (const char* body :
       {"", "ok", "<CopyObjectResult></CopyObjectResult>", "<ListBucketResult><ETag>x</ETag></ListBucketResult>"}) {
    const auto info = Copy(InTurn({{.status = 200, .headers = Headers({{"ETag", "\"x\""}}), .body = body}}));
    EXPECT_EQ(info.status().code(), absl::StatusCode::kUnavailable) << body;
    EXPECT_EQ(requests_.size(), 3u);
  }
}

TEST_F(CopyExchangeTest, ErrorsNameTheSource) {
  const auto message = [this](const ScriptedAnswer& answer, absl::StatusCode code) {
    const auto info = Copy(InTurn({answer}));
    EXPECT_EQ(info.status().code(), code) << info.status();
    EXPECT_EQ(requests_.size(), 1u);
    return std::string(info.status().message());
  };
  const auto names_source = HasSubstr("s3://source/folder/object");
  EXPECT_THAT(message(Error(412, "PreconditionFailed"), absl::StatusCode::kFailedPrecondition),
              AllOf(names_source, HasSubstr("changed since it was listed; copy it again")));
  EXPECT_THAT(message(Error(404, "NoSuchKey"), absl::StatusCode::kNotFound), names_source);
  EXPECT_THAT(message(Error(403, "AccessDenied"), absl::StatusCode::kPermissionDenied),
              AllOf(names_source, HasSubstr("s3:GetObjectTagging"), HasSubstr("folder")));
  for (const int status : {200, 501})
    EXPECT_THAT(message(Error(status, "NotImplemented"), absl::StatusCode::kUnimplemented), HasSubstr("by itself"));
  message(Error(501), absl::StatusCode::kUnimplemented);
  message(Error(404, "NoSuchBucket"), absl::StatusCode::kNotFound);
  message(Error(403, "InvalidObjectState"), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CopyExchangeTest, Parts) {
  const ScriptedAnswer copied = {
      .status = 200, .headers = {}, .body = " <CopyPartResult><ETag>\"part\"</ETag></CopyPartResult>"};
  const auto info = Copy(InTurn({Error(503), copied}), CopyExchange::Part{"I/D", 3, {10, 20}});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->etag, "part");
  EXPECT_EQ(info->size, 20u);
  EXPECT_EQ(requests_[1].head.target, "/bucket/key?partNumber=3&uploadId=I%2FD");
  EXPECT_EQ(Header(1, "x-amz-copy-source-range"), "bytes=10-29");
  EXPECT_EQ(Header(1, "x-amz-copy-source-if-match"), "\"tag\"");
  for (const CopyExchange::Part& wrong :
       {CopyExchange::Part{"", 1, {0, 1}}, CopyExchange::Part{"ID", 0, {0, 1}},
        CopyExchange::Part{"ID", 10'001, {0, 1}}, CopyExchange::Part{"ID", 1, {0, 0}}}) {
    EXPECT_EQ(Copy(InTurn({copied}), wrong).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(requests_.empty());
  }
}

TEST_F(CopyExchangeTest, ASourceWithoutANameIsRefused) {
  from_.key.clear();
  EXPECT_EQ(Copy(InTurn({kCopied})).status().code(), absl::StatusCode::kInvalidArgument);
  from_ = {.bucket = "a/b", .key = "c"};
  EXPECT_EQ(Copy(InTurn({kCopied})).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(CopyExchangeTest, NothingIsReplacedByACopyThatMustNot) {
  const auto copy = [&](ExchangeDriver::Store store) {
    return Copy(std::move(store), std::nullopt, /*only_if_absent=*/true).status().code();
  };
  EXPECT_EQ(copy(InTurn({kCopied})), absl::StatusCode::kOk);
  EXPECT_EQ(Header(0, "If-None-Match"), "*");
  // The store does not say which of the two conditions failed.
  ScriptedAnswer same = kFound;
  same.headers.Set("ETag", "\"tag\"");
  EXPECT_EQ(copy(InTurn({Error(412), same})), absl::StatusCode::kAlreadyExists) << "of the same bytes, and not ours";
  EXPECT_EQ(requests_[1].head.method, "HEAD");
  EXPECT_EQ(requests_[1].head.target, "/bucket/key");
  EXPECT_EQ(copy(InTurn({Error(412), Error(404)})), absl::StatusCode::kFailedPrecondition) << "of the source";
  // An attempt whose answer was lost may have made it.
  EXPECT_EQ(copy(InTurn({Broken(HttpErrorKind::kReset), Error(412), same})), absl::StatusCode::kOk);
  EXPECT_EQ(copy(InTurn({Broken(HttpErrorKind::kReset), Error(412), kFound})), absl::StatusCode::kAlreadyExists);
  // The first store does not know the condition of a copy, and the second one does not copy.
  EXPECT_EQ(copy(InTurn({Error(501, "NotImplemented"), kCopied})), absl::StatusCode::kOk);
  EXPECT_EQ(Header(1, "If-None-Match"), "(none)");
  EXPECT_EQ(copy(InTurn({Error(501), Error(501)})), absl::StatusCode::kUnimplemented);
}

TEST_F(CopyExchangeTest, OneVersionIsDeleted) {
  const ScriptedAnswer deleted = {.status = 204, .headers = {}, .body = ""};
  EXPECT_TRUE(Delete(InTurn({deleted})).ok());
  EXPECT_EQ(Header(0, "If-Match"), "(none)");
  EXPECT_TRUE(Delete(InTurn({deleted}), "seen").ok());
  EXPECT_EQ(Header(0, "If-Match"), "seen");
  EXPECT_EQ(Delete(InTurn({Error(412)}), "seen").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Delete(InTurn({Error(404, "NoSuchKey")}), "seen").ok());
  for (const ScriptedAnswer& unknown :
       {Error(501, "NotImplemented"), Error(400, "InvalidArgument"), Error(400, "InvalidRequest")}) {
    EXPECT_TRUE(Delete(InTurn({unknown, deleted}), "seen").ok());
    EXPECT_EQ(Header(0, "If-Match"), "seen");
    EXPECT_EQ(Header(1, "If-Match"), "(none)");
  }
  EXPECT_EQ(Delete(InTurn({Error(400, "InvalidArgument")}), "seen").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Delete(InTurn({Error(400, "InvalidBucketName"), deleted}), "seen").ok());
}

TEST_F(CopyExchangeTest, ALargeOneMayTakeLong) {
  ASSERT_TRUE(Copy(InTurn({kCopied})).ok());
  EXPECT_GE(requests_[0].extra_timeout, std::chrono::seconds(30));
  from_.size = uint64_t{5} << 30;
  ASSERT_TRUE(Copy(InTurn({kCopied})).ok());
  EXPECT_GE(requests_[0].extra_timeout, std::chrono::minutes(4));
}

TEST_F(CopyExchangeTest, HeadTellsWhatACopyKeeps) {
  ScriptedAnswer found = kFound;
  for (const auto& [name, value] : Headers({{"Content-Type", "image/png"},
                                            {"cache-control", "no-store"},
                                            {"Content-Encoding", "gzip"},
                                            {"X-Amz-Meta-Who", "me"},
                                            {"x-amz-storage-class", "GLACIER"},
                                            {"x-amz-request-id", "R"},
                                            {"Server", "s"}})) {
    found.headers.Add(name, value);
  }
  const auto object = Describe(InTurn({Error(503), found}));
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->info.size, 42u);
  EXPECT_EQ(object->content_type, "image/png");
  EXPECT_THAT(object->headers, ::testing::ElementsAre(::testing::Pair("cache-control", "no-store"),
                                                      ::testing::Pair("Content-Encoding", "gzip"),
                                                      ::testing::Pair("X-Amz-Meta-Who", "me")));

  const ScriptedAnswer created = {
      .status = 200,
      .headers = {},
      .body = "<InitiateMultipartUploadResult><UploadId>ID</UploadId></InitiateMultipartUploadResult>"};
  const auto id = Run<absl::StatusOr<std::string>>(InTurn({created}), [&](S3Context& context, auto done) {
    return NewCreateMultipartExchange(
        context, "bucket", "key",
        UploadOptions{.content_type = object->content_type, .headers = object->headers, .checksum = false},
        std::move(done));
  });
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(Header(0, "content-type"), "image/png");
  EXPECT_EQ(Header(0, "x-amz-meta-who"), "me");
  EXPECT_EQ(Header(0, "x-amz-checksum-algorithm"), "(none)") << "the parts come without";
}

}  // namespace
}  // namespace millrace
