#include "s3/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EndpointUrl, IsTakenApart) {
  const auto check = [](const char* url, HttpEndpoint server, const char* path) {
    const auto parsed = ParseEndpointUrl(url);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->server, server) << url;
    EXPECT_EQ(parsed->base_path, path) << url;
  };
  check("http://127.0.0.1:9000", {"127.0.0.1", 9000, false}, "");
  check("http://127.0.0.1:9000/", {"127.0.0.1", 9000, false}, "");
  check("https://store.example", {"store.example", 443, true}, "");
  check("http://store", {"store", 80, false}, "");
  check("https://store:8443/base/path//", {"store", 8443, true}, "/base/path");
  check("http://[::1]:9000/x", {"::1", 9000, false}, "/x");
  check("http://[fd00::2]", {"fd00::2", 80, false}, "");
}

class BadEndpointUrl : public ::testing::TestWithParam<const char*> {};
TEST_P(BadEndpointUrl, IsRefused) {
  EXPECT_EQ(ParseEndpointUrl(GetParam()).status().code(), absl::StatusCode::kInvalidArgument);
}
INSTANTIATE_TEST_SUITE_P(Urls, BadEndpointUrl,
                         ::testing::Values("", "127.0.0.1:9000", "ftp://x", "http://", "http://:80",
                                           "http://a:", "http://a:0", "http://a:65536", "http://a:-1", "http://a:8x",
                                           "http://a b", "http://a?x", "http://a/b?c", "http://a/b#c", "http://[::1",
                                           "http://[::1]x", "http://[]", "http://a\r\nb", "http://user:pass@a"));

TEST(EndpointUrl, SecretsAreNotRepeated) {
  // Passwords contain what separates a URL's parts, too: '@', '/', '?', a missing scheme.
  for (const char* url : {"http://user:hunter2@host", "http://user:p@hunter2@host:x", "http://user:p/hunter2@host",
                          "http://user:p@/hunter2@host", "user:p@hunter2@host", "https://hunter2:?@host",
                          "http://user:a@b?hunter2@[::1", "http://host/key?X-Amz-Signature=hunter2"}) {
    const absl::Status status = ParseEndpointUrl(url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hunter2"))) << url;
  }
  // A canary: the URL is repeated where there is nothing to hide.
  EXPECT_THAT(std::string(ParseEndpointUrl("http://hunter2:x").status().message()), HasSubstr("hunter2"));
}

TEST(HostHeader, HasThePortOnlyWhenItIsUnusual) {
  EXPECT_EQ(HostHeader({"h", 80, false}), "h");
  EXPECT_EQ(HostHeader({"h", 443, true}), "h");
  EXPECT_EQ(HostHeader({"h", 443, false}), "h:443");
  EXPECT_EQ(HostHeader({"h", 9000, true}), "h:9000");
  EXPECT_EQ(HostHeader({"::1", 9000, false}), "[::1]:9000");
}

TEST(Addressing, CustomEndpointsGoByPath) {
  const auto custom = ParseEndpointUrl("http://127.0.0.1:9000/base");
  const S3Address address = AddressOf(*custom, "us-east-1", S3Addressing::kAuto, "bucket", "a b/c");
  EXPECT_EQ(address.server, (HttpEndpoint{"127.0.0.1", 9000, false}));
  EXPECT_EQ(address.host, "127.0.0.1:9000");
  EXPECT_EQ(address.path, "/base/bucket/a%20b/c");
  EXPECT_EQ(AddressOf(*custom, "us-east-1", S3Addressing::kAuto, "bucket", "").path, "/base/bucket");
}

TEST(Addressing, AwsGoesByHostWhereTheNameAllows) {
  const S3Address address = AddressOf(std::nullopt, "eu-west-1", S3Addressing::kAuto, "my-bucket", "k/./e//y");
  EXPECT_EQ(address.server, (HttpEndpoint{"my-bucket.s3.eu-west-1.amazonaws.com", 443, true}));
  EXPECT_EQ(address.host, "my-bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(address.path, "/k/./e//y");
  EXPECT_EQ(AddressOf(std::nullopt, "eu-west-1", S3Addressing::kAuto, "my-bucket", "").path, "/");
  EXPECT_EQ(AddressOf(std::nullopt, "cn-north-1", S3Addressing::kAuto, "my-bucket", "").host,
            "my-bucket.s3.cn-north-1.amazonaws.com.cn");
  for (const char* bucket : {"with.dot", "Upper", "under_score", "ab", "-dash", "dash-"}) {
    const S3Address by_path = AddressOf(std::nullopt, "eu-west-1", S3Addressing::kAuto, bucket, "key");
    EXPECT_EQ(by_path.host, "s3.eu-west-1.amazonaws.com") << bucket;
    EXPECT_EQ(by_path.path, std::string("/") + bucket + "/key");
  }
  EXPECT_EQ(AddressOf(std::nullopt, "eu-west-1", S3Addressing::kPath, "my-bucket", "key").path, "/my-bucket/key");
}

TEST(Addressing, DualStackAndFips) {
  const auto host = [](AwsEndpointKind kind, const char* region = "eu-west-1", const char* bucket = "my-bucket") {
    return AddressOf(std::nullopt, region, S3Addressing::kAuto, bucket, "key", kind).host;
  };
  EXPECT_EQ(host({.dual_stack = true}), "my-bucket.s3.dualstack.eu-west-1.amazonaws.com");
  EXPECT_EQ(host({.fips = true}), "my-bucket.s3-fips.eu-west-1.amazonaws.com");
  EXPECT_EQ(host({.dual_stack = true, .fips = true}), "my-bucket.s3-fips.dualstack.eu-west-1.amazonaws.com");
  EXPECT_EQ(host({.dual_stack = true}, "cn-north-1", "with.dot"), "s3.dualstack.cn-north-1.amazonaws.com.cn");
  const auto custom = ParseEndpointUrl("http://store.example:9000");
  EXPECT_EQ(AddressOf(*custom, "r", S3Addressing::kAuto, "bucket", "key", {.dual_stack = true, .fips = true}).host,
            "store.example:9000");
}

TEST(Addressing, ByWish) {
  const auto address = [](const char* url, S3Addressing addressing, const char* bucket) {
    const S3Address result = AddressOf(*ParseEndpointUrl(url), "r", addressing, bucket, "key");
    return result.host + result.path;
  };
  const char* url = "http://store.example:9000/base";
  EXPECT_EQ(address(url, S3Addressing::kAuto, "bucket"), "store.example:9000/base/bucket/key");
  EXPECT_EQ(address(url, S3Addressing::kPath, "bucket"), "store.example:9000/base/bucket/key");
  EXPECT_EQ(address(url, S3Addressing::kVirtual, "bucket"), "bucket.store.example:9000/base/key");
  EXPECT_EQ(address(url, S3Addressing::kVirtual, "with.dot"), "store.example:9000/base/with.dot/key");
  EXPECT_EQ(address("http://127.0.0.1:1", S3Addressing::kVirtual, "bucket"), "127.0.0.1:1/bucket/key");
  EXPECT_EQ(address("http://[::1]:1", S3Addressing::kVirtual, "bucket"), "[::1]:1/bucket/key");
  EXPECT_EQ(AddressOf(std::nullopt, "eu-west-1", S3Addressing::kVirtual, "my-bucket", "key").host,
            "my-bucket.s3.eu-west-1.amazonaws.com");
}

TEST(Names, ArePlausible) {
  for (const char* bucket : {"b", "my-bucket", "With_Under.dots"}) EXPECT_TRUE(PlausibleBucket(bucket)) << bucket;
  for (const char* bucket : {"", ".", "..", "a/b", "a b", "a?b", "ü"}) EXPECT_FALSE(PlausibleBucket(bucket)) << bucket;
  EXPECT_FALSE(PlausibleBucket(std::string(256, 'a')));
  for (const char* region : {"us-east-1", "auto", "RegionOne", "default"})
    EXPECT_TRUE(PlausibleRegion(region)) << region;
  for (const char* region : {"", "evil.example/", "a b", "a\r\n", "a.b"})
    EXPECT_FALSE(PlausibleRegion(region)) << region;
}

}  // namespace
}  // namespace millrace
