#include "aws/endpoint.h"

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

TEST(ServiceEndpoints, AreThoseOfTheRegionOrCustom) {
  const auto host = [](const char* region, const char* custom) {
    const auto endpoint = ServiceEndpoint("sts", region, custom, "AWS_ENDPOINT_URL_STS");
    return endpoint.ok() ? HostHeader(endpoint->server) : std::string(endpoint.status().message());
  };
  EXPECT_EQ(host("eu-west-1", ""), "sts.eu-west-1.amazonaws.com");
  EXPECT_EQ(host("cn-north-1", ""), "sts.cn-north-1.amazonaws.com.cn");
  EXPECT_EQ(host("eu-west-1", "http://other:7"), "other:7");
  EXPECT_THAT(host("eu-west-1", "nonsense"), HasSubstr("AWS_ENDPOINT_URL_STS"));
}

TEST(Regions, HavePlausibleNames) {
  for (const char* region : {"us-east-1", "auto", "RegionOne", "default"})
    EXPECT_TRUE(PlausibleRegion(region)) << region;
  for (const char* region : {"", "evil.example/", "a b", "a\r\n", "a.b"})
    EXPECT_FALSE(PlausibleRegion(region)) << region;
}

}  // namespace
}  // namespace millrace
