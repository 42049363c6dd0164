#include "store/uri.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using Scheme = ParsedUri::Scheme;
using ::testing::HasSubstr;

TEST(Uri, TakesItsFourForms) {
  const std::vector<std::pair<std::string, ParsedUri>> cases{
      {"s3://bucket", {Scheme::kS3, "bucket", ""}},
      {"s3://bucket/", {Scheme::kS3, "bucket", ""}},
      {"S3://my.bucket-1/a/b c", {Scheme::kS3, "my.bucket-1", "a/b c"}},
      {"s3://b//x", {Scheme::kS3, "b", "/x"}},
      {"s3://b/%20?#", {Scheme::kS3, "b", "%20?#"}},
      {"s3://b/pre/", {Scheme::kS3, "b", "pre/"}},
      {"s3://arn:aws:s3:r:1:accesspoint/x/a/b@c", {Scheme::kS3, "arn:aws:s3:r:1:accesspoint:x", "a/b@c"}},
      {"s3://arn:aws:s3:r:1:accesspoint:x", {Scheme::kS3, "arn:aws:s3:r:1:accesspoint:x", ""}},
      {"mem://name/key", {Scheme::kMemory, "name", "key"}},
      {"file:///data/x", {Scheme::kFile, "", "/data/x"}},
      {"/data/x", {Scheme::kFile, "", "/data/x"}},
      {"data", {Scheme::kFile, "", "data"}},
      {"./a:b//c", {Scheme::kFile, "", "./a:b//c"}},
      {"a:b", {Scheme::kFile, "", "a:b"}},
  };
  for (const auto& [text, expected] : cases) {
    const auto parsed = ParseUri(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, expected) << text;
  }
}

TEST(Uri, RefusesOthersAndSaysWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "is empty"},
      {"s3:/bucket/key", "two slashes"},
      {"s3:bucket", "two slashes"},
      {"file:/x", "two slashes"},
      {"s3://", "bucket"},
      {"s3:///key", "bucket"},
      {"s3://buc ket/key", "bucket"},
      {"s3://arn:aws:s3/x", "bucket"},
      {"s3://arn:aws:s3:::bucket/x", "write s3://bucket"},
      {"mem://", "name"},
      {"file://host/x", "absolute"},
      {"file://", "absolute"},
      {"http://host/x", "AWS_ENDPOINT_URL"},
      {"https://host/x", "AWS_ENDPOINT_URL"},
      {"https://host/x.tar", "curl"},
      {"gs://bucket/x", "https://storage.googleapis.com"},
      {"GCS://bucket/x", "HMAC key"},
      {"az://x", "azcopy"},
      {"abfss://box@account.dfs.core.windows.net/x", "mount the container"},
      {"hf://datasets/user/name", "hf download NAME --repo-type dataset"},
      {"s3a://bucket/x", "write s3:// in its place"},
      {"r2://bucket/x", "AWS_ENDPOINT_URL"},
      {"hdfs://name/x", "distcp"},
      {"sftp://host/x", "rsync"},
      {"dbfs://x", "/dbfs/"},
      {"foo://x", "'foo' is not a store"},
      {std::string("a\0b", 3), "NUL"},
  };
  for (const auto& [text, why] : cases) {
    const auto parsed = ParseUri(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(ToStd(parsed.status().message()), HasSubstr(why)) << text;
    EXPECT_THAT(ToStd(parsed.status().message()), HasSubstr("s3://bucket/key")) << text;
  }
}

TEST(Uri, SecretsAreNotRepeated) {
  for (const char* text : {
           "https://bucket.s3.amazonaws.com/key?X-Amz-Date=x&X-Amz-Signature=CANARY",
           "https://bucket.s3.amazonaws.com/key?AWSAccessKeyId=AK&Signature=CANARY&Expires=1",
           "https://account.blob.core.windows.net/key?sv=1&sig=CANARY",
           "http://user:CANARY@host/key",
           "s3://bucket/key?X-Amz-Signature=CANARY",
           "s3://bucket/key?x-amz-security-token=CANARY",
           "s3://AK:CANARY@bucket/key",
           "s3://arn:CANARY@bucket/key",
           "s3://AK:CAN/CANARY@bucket/key",
           "s3://CANARY@bucket",
           "gs://CANARY@bucket/key?X-Goog-Signature=CANARY",
       }) {
    const auto parsed = ParseUri(text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(ToStd(parsed.status().message()), ::testing::Not(HasSubstr("CANARY"))) << text;
  }
  EXPECT_TRUE(ParseUri("s3://bucket/what?Signature").ok());
  EXPECT_TRUE(ParseUri("s3://bucket/user@host:x?a=b").ok());
}

}  // namespace
}  // namespace millrace
