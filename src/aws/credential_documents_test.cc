#include "aws/credential_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kEnd = absl::FromUnixSeconds(1'767'225'600);  // 2026-01-01

void ExpectKeysUntil(const absl::StatusOr<ExpiringCredentials>& got, absl::Time expires = kEnd) {
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->keys.access_key, "AK");
  EXPECT_EQ(got->keys.secret_key, "SK");
  EXPECT_EQ(got->keys.session_token, "ST");
  EXPECT_EQ(got->expires, expires);
}

std::string Sts(const std::string& action, const std::string& keys) {
  return "<" + action + "Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><" + action +
         "Result><Credentials>" + keys + "</Credentials></" + action + "Result></" + action + "Response>";
}

constexpr char kXmlKeys[] =
    "<AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey><SessionToken>ST</SessionToken>";

TEST(CredentialDocuments, WhatEachSourceSends) {
  ExpectKeysUntil(
      ParseStsXml(Sts("AssumeRole", std::string(kXmlKeys) + "<Expiration>2026-01-01T00:00:00Z</Expiration>")));
  ExpectKeysUntil(ParseStsXml(
      Sts("AssumeRoleWithWebIdentity", std::string(kXmlKeys) + "<Expiration>2026-01-01T00:00:00.000Z</Expiration>")));
  ExpectKeysUntil(
      ParseMetadataJson(R"({"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "AK", "SecretAccessKey": "SK",
                                   "Token": "ST", "Expiration": "2026-01-01T00:00:00Z"})"));
  ExpectKeysUntil(ParseProcessJson(R"({"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": "SK", "SessionToken": "ST",
                                  "Expiration": "2026-01-01T01:00:00+01:00"})"));
  ExpectKeysUntil(
      ParseProcessJson(R"({"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": "SK", "SessionToken": "ST"})"),
      absl::InfiniteFuture());
  ExpectKeysUntil(ParseSsoRoleJson(R"({"roleCredentials": {"accessKeyId": "AK", "secretAccessKey": "SK",
                                  "sessionToken": "ST", "expiration": 1767225600000}})"));
  const auto token = ParseSsoTokenJson(R"({"accessToken": "T", "expiresAt": "2026-01-01T00:00:00UTC", "x": 1})");
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->access_token, "T");
  EXPECT_EQ(token->expires, kEnd);
  const StsError error =
      ParseStsErrorXml("<ErrorResponse><Error><Code>AccessDenied</Code><Message>No.</Message></Error></ErrorResponse>");
  EXPECT_EQ(error.code, "AccessDenied");
  EXPECT_EQ(error.message, "No.");
}

TEST(CredentialDocuments, WhatIsBrokenIsNamedAndNeverQuoted) {
  const std::string canary = "CANARY";
  const std::vector<absl::Status> errors = {
      ParseStsXml(canary).status(),
      ParseStsXml("<CANARY/>").status(),
      ParseStsXml(Sts("AssumeRole", "<Expiration>CANARY</Expiration>")).status(),
      ParseStsXml(Sts("AssumeRole", kXmlKeys)).status(),
      ParseMetadataJson(canary).status(),
      ParseMetadataJson("[\"CANARY\"]").status(),
      ParseMetadataJson(R"({"Code": "CANARY"})").status(),
      ParseMetadataJson(R"({"AccessKeyId": "CANARY"})").status(),
      ParseMetadataJson(R"({"SecretAccessKey": "CANARY"})").status(),
      ParseMetadataJson(R"({"AccessKeyId": "AK", "SecretAccessKey": "CANARY\n"})").status(),
      ParseMetadataJson(R"({"AccessKeyId": "AK", "SecretAccessKey": "SK", "Token": "CANARY\r\nX: y"})").status(),
      ParseMetadataJson(R"({"AccessKeyId": "AK", "SecretAccessKey": "SK", "Expiration": "CANARY"})").status(),
      ParseMetadataJson(R"({"AccessKeyId": "AK", "SecretAccessKey": "SK", "Expiration": 7})").status(),
      ParseMetadataJson(R"({"AccessKeyId": "AK", "SecretAccessKey": "SK", "Expiration": "infinite-future"})").status(),
      ParseProcessJson(R"({"AccessKeyId": "CANARY", "SecretAccessKey": "SK"})").status(),
      ParseProcessJson(R"({"Version": 2, "AccessKeyId": "CANARY", "SecretAccessKey": "SK"})").status(),
      ParseSsoRoleJson(R"({"accessKeyId": "CANARY"})").status(),
      ParseSsoRoleJson(R"({"roleCredentials": {"accessKeyId": "CANARY", "secretAccessKey": "SK"}})").status(),
      ParseSsoRoleJson(R"({"roleCredentials": {"expiration": 18446744073709551615}})").status(),
      ParseSsoTokenJson(R"({"accessToken": "CANARY", "expiresAt": "CANARY"})").status(),
      ParseSsoTokenJson(R"({"expiresAt": "2026-01-01T00:00:00Z"})").status(),
      CheckSecret("CANARY CANARY", "a key"),
      CheckSecret(std::string(40'000, 'x'), "a key"),
  };
  for (size_t i = 0; i < errors.size(); ++i) {
    EXPECT_EQ(errors[i].code(), absl::StatusCode::kInvalidArgument) << i;
    EXPECT_THAT(std::string(errors[i].message()), Not(HasSubstr(canary))) << i;
  }
}

}  // namespace
}  // namespace millrace
