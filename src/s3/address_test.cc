#include "s3/address.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

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

TEST(Buckets, HavePlausibleNames) {
  for (const char* bucket : {"b", "my-bucket", "With_Under.dots"}) EXPECT_TRUE(PlausibleBucket(bucket)) << bucket;
  for (const char* bucket : {"", ".", "..", "a/b", "a b", "a?b", "ü"}) EXPECT_FALSE(PlausibleBucket(bucket)) << bucket;
  EXPECT_FALSE(PlausibleBucket(std::string(256, 'a')));
}

}  // namespace
}  // namespace millrace
