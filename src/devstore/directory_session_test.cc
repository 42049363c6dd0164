#include "devstore/directory_session.h"

#include <gtest/gtest.h>

#include "devstore/testing/storage_helpers.h"

namespace millrace {
namespace {

constexpr char kBucket[] = "data--usw2-az1--x-s3";

S3Request About(const std::string& method, const std::string& key, const std::string& token = "",
                std::vector<std::pair<std::string, std::string>> query = {}) {
  S3Request request;
  request.head.method = method;
  request.bucket = kBucket;
  request.key = key;
  request.query = std::move(query);
  if (!token.empty()) request.head.headers.Add("x-amz-s3session-token", token);
  return request;
}

TEST(DirectorySessions, SignRequestsUntilTheyEnd) {
  const AuthSettings settings{{"key", "server-secret", ""}, "us-east-1"};
  const absl::Time now = absl::FromUnixSeconds(1'767'225'600);
  const ExpiringCredentials session = MakeDirectorySession(kBucket, "server-secret", now);
  const std::string& token = session.keys.session_token;
  EXPECT_EQ(session.expires, now + absl::Minutes(5));
  const auto auth = DirectoryAuth(About("GET", "x", token), settings, now);
  ASSERT_TRUE(auth.ok()) << auth.status();
  EXPECT_EQ(auth->credentials.access_key, session.keys.access_key);
  EXPECT_EQ(auth->credentials.secret_key, session.keys.secret_key);
  EXPECT_EQ(auth->service, "s3express");
  const auto code = [&](const S3Request& request, absl::Time at) {
    return CodeOf(DirectoryAuth(request, settings, at).status());
  };
  EXPECT_EQ(code(About("GET", "x", token), session.expires), "ExpiredToken");
  EXPECT_EQ(code(About("GET", "x"), now), "AccessDenied");
  EXPECT_EQ(code(About("GET", "x", token + "0"), now), "InvalidToken");
  EXPECT_EQ(code(About("GET", "x", "nonsense"), now), "InvalidToken");
  S3Request other = About("GET", "x", token);
  other.bucket = "other--usw2-az1--x-s3";
  EXPECT_EQ(code(other, now), "InvalidToken");
  // The keys of the account make a session, and sign copies.
  S3Request copy = About("PUT", "x");
  copy.head.headers.Add("x-amz-copy-source", "b/x");
  for (const S3Request& request : {About("GET", "", "", {{"session", ""}}), copy})
    EXPECT_EQ(DirectoryAuth(request, settings, now)->credentials.access_key, "key");
}

TEST(DirectorySessions, RequestsThatAreRefused) {
  const auto code = [](std::vector<std::pair<std::string, std::string>> query) {
    return CodeOf(CheckDirectoryRequest(About("GET", "", "", std::move(query))));
  };
  EXPECT_EQ(code({{"list-type", "2"}}), "");
  EXPECT_EQ(code({{"list-type", "2"}, {"prefix", "a/"}, {"delimiter", "/"}}), "");
  EXPECT_EQ(code({{"list-type", "2"}, {"prefix", "a"}}), "InvalidRequest");
  EXPECT_EQ(code({{"list-type", "2"}, {"delimiter", "-"}}), "InvalidRequest");
  EXPECT_EQ(code({{"list-type", "2"}, {"start-after", "a"}}), "NotImplemented");
  EXPECT_EQ(code({}), "NotImplemented");
  S3Request with_md5 = About("POST", "");
  with_md5.head.headers.Add("Content-MD5", "x");
  EXPECT_EQ(CodeOf(CheckDirectoryRequest(with_md5)), "InvalidRequest");
}

}  // namespace
}  // namespace millrace
