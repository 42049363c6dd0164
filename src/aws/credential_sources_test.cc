// These tests run every source of credentials without I/O: the settings that lead to it, what it asks, and what it
// makes of answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "aws/credential_chain.h"
#include "aws/credential_flow.h"
#include "aws/local_source.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'767'225'600);  // 2026-01-01

constexpr char kRole[] = "arn:aws:iam::123456789012:role/reader";
constexpr char kJsonKeys[] =
    R"({"AccessKeyId": "AK", "SecretAccessKey": "CANARY-S", "Token": "CANARY-T",
        "Expiration": "2026-01-01T01:00:00Z"})";

std::string StsAnswer(const std::string& action, const std::string& key) {
  return "<" + action + "Response><" + action + "Result><Credentials><AccessKeyId>" + key +
         "</AccessKeyId><SecretAccessKey>CANARY-S</SecretAccessKey><SessionToken>CANARY-T</SessionToken>"
         "<Expiration>2026-01-01T01:00:00Z</Expiration></Credentials></" +
         action + "Result></" + action + "Response>";
}

CredentialInput Http(int status, std::string text, std::optional<absl::Time> date = std::nullopt) {
  return {absl::OkStatus(), status, std::move(text), date};
}
CredentialInput File(std::string text) {
  return {absl::OkStatus(), 0, std::move(text), std::nullopt};
}
CredentialInput Broken() {
  return {absl::UnavailableError("connection refused"), 0, "", std::nullopt};
}

class CredentialSourcesTest : public ::testing::Test {
 protected:
  CredentialSourcesTest() { variables_ = {{"HOME", "/home/me"}, {"AWS_REGION", "eu-west-1"}}; }

  absl::StatusOr<std::unique_ptr<CredentialSource>> Find() {
    const AwsEnvironment environment = {.variable = [this](const std::string& name) -> std::optional<std::string> {
                                          const auto at = variables_.find(name);
                                          return at == variables_.end() ? std::nullopt : std::optional(at->second);
                                        },
                                        .read_file = [this](const std::string& path) -> absl::StatusOr<std::string> {
                                          if (path != "/home/me/.aws/config") return absl::NotFoundError(path);
                                          return config_;
                                        }};
    absl::StatusOr<AwsSettings> settings = AwsSettings::Load(environment);
    if (!settings.ok()) return std::move(settings).status();
    return FindCredentialSource(*settings);
  }
  std::string Problem() {
    const auto source = Find();
    return source.ok() ? "" : std::string(source.status().message());
  }

  /// Runs the source that the settings lead to against `answers`; the last one is repeated. Errors must keep secrets.
  CredentialFlow::Result Fetch(std::vector<CredentialInput> answers) {
    asked_.clear();
    calls_.clear();
    waits_ = 0;
    absl::StatusOr<std::unique_ptr<CredentialSource>> source = Find();
    if (!source.ok()) return std::move(source).status();
    CredentialFlow flow(*std::move(source), 1);
    absl::Time now = kNow;
    size_t next = 0;
    for (CredentialFlow::Step step = flow.Begin(now);;) {
      if (auto* result = std::get_if<CredentialFlow::Result>(&step)) {
        EXPECT_THAT(std::string(result->status().message()), Not(HasSubstr("CANARY")));
        return std::move(*result);
      }
      if (const auto* wait = std::get_if<WaitAction>(&step)) {
        ++waits_;
        now += wait->wait;
        step = flow.AfterWait();
        continue;
      }
      if (const auto* file = std::get_if<ReadFileAction>(&step)) asked_.push_back("file " + file->path);
      if (const auto* file = std::get_if<WriteFileAction>(&step)) {
        asked_.push_back("write " + file->path);
        written_ = file->contents;
      }
      if (const auto* process = std::get_if<RunProcessAction>(&step)) asked_.push_back("run " + process->command);
      if (const auto* call = std::get_if<CallAction>(&step)) {
        asked_.push_back(call->head.method + (call->endpoint.tls ? " https://" : " http://") + call->endpoint.host +
                         call->head.target);
        calls_.push_back(*call);
      }
      if (asked_.size() > 50) return absl::InternalError("it does not end");
      step = flow.OnInput(answers[std::min(next++, answers.size() - 1)], now);
    }
  }
  std::string Header(size_t call, std::string_view name) {
    return std::string(calls_.at(call).head.headers.Find(name).value_or("(none)"));
  }

  std::map<std::string, std::string> variables_;
  std::string config_;
  std::vector<std::string> asked_;
  std::vector<CallAction> calls_;
  std::string written_;
  int waits_ = 0;
};

void ExpectKeys(const CredentialFlow::Result& result, const std::string& key = "AK") {
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->keys.access_key, key);
  EXPECT_EQ(result->keys.secret_key, "CANARY-S");
}

TEST_F(CredentialSourcesTest, TheFirstThatIsConfiguredWins) {
  const auto name = [this] {
    const auto source = Find();
    return source.ok() ? (*source)->Name() : std::string(source.status().message());
  };
  variables_["AWS_EC2_METADATA_DISABLED"] = "TRUE";
  EXPECT_THAT(name(), HasSubstr("no AWS credentials were found"));
  variables_.erase("AWS_EC2_METADATA_DISABLED");
  EXPECT_THAT(name(), HasSubstr("metadata service (169.254.169.254)"));
  variables_["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/x";
  EXPECT_THAT(name(), HasSubstr("container's endpoint (169.254.170.2)"));
  config_ = "[default]\nregion = x\n[sso-session s]\nsso_region = eu-west-1\n";
  EXPECT_THAT(name(), HasSubstr("container"));
  config_ += "[default]\ncredential_process = x\n";
  EXPECT_THAT(name(), HasSubstr("credential_process of profile 'default'"));
  config_ += "aws_access_key_id = A\naws_secret_access_key = CANARY\nsso_session = s\n";
  EXPECT_EQ(name(), "profile 'default'");
  config_ += "sso_account_id = 1\nsso_role_name = r\n";
  EXPECT_THAT(name(), HasSubstr("SSO of profile 'default'"));
  variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  variables_["AWS_ROLE_ARN"] = kRole;
  EXPECT_EQ(name(), std::string("web identity (role ") + kRole + ")");
  config_ += "[profile keys]\naws_access_key_id = A\naws_secret_access_key = CANARY\n";
  config_ += "[default]\nrole_arn = R\nsource_profile = keys\n";
  EXPECT_EQ(name(), "role R by profile 'keys'");
  variables_["AWS_ACCESS_KEY_ID"] = "A";
  variables_["AWS_SECRET_ACCESS_KEY"] = "CANARY";
  EXPECT_EQ(name(), "the environment");
}

TEST_F(CredentialSourcesTest, MistakesAreNamed) {
  config_ = "[default]\nrole_arn = R\n";
  EXPECT_THAT(Problem(), AllOf(HasSubstr("profile 'default'"), HasSubstr("source_profile")));
  config_ = "[default]\nrole_arn = R\nsource_profile = b\ncredential_source = Environment\n";
  EXPECT_THAT(Problem(), HasSubstr("needs one of"));
  config_ = "[default]\nrole_arn = R\nsource_profile = gone\n";
  EXPECT_THAT(Problem(), HasSubstr("'gone' does not exist"));
  config_ = "[default]\nrole_arn = R\nsource_profile = b\n[profile b]\nrole_arn = S\nsource_profile = default\n";
  EXPECT_THAT(Problem(), HasSubstr("leads back to 'default'"));
  config_ = "[default]\nrole_arn = R\nsource_profile = default\n";
  EXPECT_THAT(Problem(), HasSubstr("has no credentials"));
  config_ = "[default]\nrole_arn = R\ncredential_source = Elsewhere\n";
  EXPECT_THAT(Problem(), HasSubstr("'Elsewhere'"));
  config_ = "[default]\nrole_arn = R\ncredential_source = Environment\n";
  EXPECT_THAT(Problem(), HasSubstr("AWS_ACCESS_KEY_ID is not set"));
  config_ = "[default]\nrole_arn = R\nsource_profile = b\nmfa_serial = m\n";
  EXPECT_THAT(Problem(), HasSubstr("mfa_serial"));
  config_ = "[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n";
  EXPECT_THAT(Problem(), HasSubstr("[sso-session s]"));
  config_ = "[default]\nsso_start_url = u\nsso_region = eu-west-1\n";
  EXPECT_THAT(Problem(), HasSubstr("aws configure sso"));
  config_ = "[default]\naws_access_key_id = A\n";
  EXPECT_THAT(Problem(), HasSubstr("only the access key"));
  config_ = "";
  variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  EXPECT_THAT(Problem(), HasSubstr("AWS_ROLE_ARN"));
  variables_["AWS_ROLE_ARN"] = "R";
  variables_["AWS_ENDPOINT_URL_STS"] = "sts.example";
  EXPECT_THAT(Problem(), HasSubstr("AWS_ENDPOINT_URL_STS"));
}

TEST_F(CredentialSourcesTest, WebIdentity) {
  variables_.insert({{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"}, {"AWS_ROLE_ARN", kRole}});
  ExpectKeys(Fetch({File(" CANARY-token+/=\n"), Http(200, StsAnswer("AssumeRoleWithWebIdentity", "AK"))}));
  EXPECT_THAT(asked_, ::testing::ElementsAre("file /token", "POST https://sts.eu-west-1.amazonaws.com/"));
  EXPECT_EQ(calls_[0].body,
            "Version=2011-06-15&Action=AssumeRoleWithWebIdentity"
            "&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Freader&RoleSessionName=millrace"
            "&WebIdentityToken=CANARY-token%2B%2F%3D");
  EXPECT_EQ(Header(0, "Authorization"), "(none)");

  const std::string denied =
      "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>Bad token CANARY-token+/= or "
      "CANARY-token%2B%2F%3D</Message></Error></ErrorResponse>";
  auto result = Fetch({File("CANARY-token+/="), Http(400, denied)});
  EXPECT_TRUE(absl::IsUnauthenticated(result.status()));
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("web identity"), HasSubstr(kRole),
                    HasSubstr("InvalidIdentityToken: Bad token *** or ***"), HasSubstr("trust policy")));
  EXPECT_EQ(waits_, 0);
  // A provider that is out of reach for a moment is asked again.
  const std::string passing = "<ErrorResponse><Error><Code>IDPCommunicationError</Code></Error></ErrorResponse>";
  ExpectKeys(Fetch({File("t"), Http(400, passing), Broken(), Http(503, ""),
                    Http(200, StsAnswer("AssumeRoleWithWebIdentity", "AK"))}));
  EXPECT_EQ(waits_, 3);
  EXPECT_TRUE(absl::IsUnavailable(Fetch({File("t"), Http(503, "CANARY")}).status()));
  EXPECT_EQ(calls_.size(), 4u);

  result = Fetch({CredentialInput{absl::NotFoundError("/token"), 0, "", std::nullopt}});
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("AWS_WEB_IDENTITY_TOKEN_FILE"));
  EXPECT_THAT(std::string(Fetch({File("")}).status().message()), HasSubstr("is empty"));
  EXPECT_FALSE(Fetch({File("CANARY\r\nInjected: yes")}).ok());
  EXPECT_FALSE(Fetch({File("t"), Http(200, "CANARY")}).ok());
}

TEST_F(CredentialSourcesTest, RolesOfProfilesAreAssumedInTurn) {
  variables_["AWS_ENDPOINT_URL_STS"] = "http://sts.test:8000/base";
  config_ =
      "[default]\nrole_arn = top\nsource_profile = middle\nexternal_id = e x\nduration_seconds = 900\n"
      "role_session_name = me\n"
      "[profile middle]\nrole_arn = middle\nsource_profile = keys\n"
      "[profile keys]\naws_access_key_id = STATIC\naws_secret_access_key = CANARY-0\n";
  ExpectKeys(Fetch({Http(200, StsAnswer("AssumeRole", "MIDDLE")), Http(200, StsAnswer("AssumeRole", "TOP"))}), "TOP");
  EXPECT_THAT(asked_, ::testing::ElementsAre("POST http://sts.test/base/", "POST http://sts.test/base/"));
  EXPECT_EQ(calls_[0].body, "Version=2011-06-15&Action=AssumeRole&RoleArn=middle&RoleSessionName=millrace");
  EXPECT_EQ(calls_[1].body,
            "Version=2011-06-15&Action=AssumeRole&RoleArn=top&RoleSessionName=me&DurationSeconds=900&ExternalId=e%20x");
  EXPECT_THAT(Header(0, "Authorization"), HasSubstr("Credential=STATIC/20260101/eu-west-1/sts/aws4_request"));
  EXPECT_THAT(Header(1, "Authorization"), HasSubstr("Credential=MIDDLE/20260101/eu-west-1/sts/aws4_request"));
  EXPECT_EQ(Header(1, "x-amz-security-token"), "CANARY-T");
  EXPECT_EQ(Header(0, "Host"), "sts.test:8000");

  const auto result = Fetch({Http(403,
                                  "<ErrorResponse><Error><Code>AccessDenied</Code><Message>CANARY-0 may not "
                                  "sts:AssumeRole</Message></Error></ErrorResponse>")});
  EXPECT_TRUE(absl::IsPermissionDenied(result.status()));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("role top by role middle by profile 'keys'"));
}

TEST_F(CredentialSourcesTest, RolesByFips) {
  config_ =
      "[default]\nrole_arn = R\nsource_profile = default\naws_access_key_id = A\naws_secret_access_key = CANARY\n"
      "use_fips_endpoint = true\n";
  ExpectKeys(Fetch({Http(200, StsAnswer("AssumeRole", "AK"))}));
  EXPECT_THAT(asked_, ::testing::ElementsAre("POST https://sts-fips.eu-west-1.amazonaws.com/"));
}

TEST_F(CredentialSourcesTest, AWrongClockIsCorrectedAndSoIsTheEnd) {
  config_ = "[default]\nrole_arn = R\nsource_profile = default\naws_access_key_id = A\naws_secret_access_key = S\n";
  const absl::Time theirs = kNow + absl::Minutes(40);
  const auto result =
      Fetch({Http(403, "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>", theirs),
             Http(200, StsAnswer("AssumeRole", "AK"), theirs)});
  ExpectKeys(result);
  EXPECT_EQ(Header(0, "x-amz-date"), "20260101T000000Z");
  EXPECT_EQ(Header(1, "x-amz-date"), "20260101T004000Z");
  EXPECT_EQ(result->expires, kNow + absl::Minutes(20)) << "by our clock";
  EXPECT_FALSE(Fetch({Http(403, "", theirs)}).ok());
  EXPECT_EQ(calls_.size(), 2u) << "once";
}

TEST_F(CredentialSourcesTest, CredentialSourceOfARole) {
  config_ = "[default]\nrole_arn = R\ncredential_source = EcsContainer\n";
  variables_["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/x";
  ExpectKeys(Fetch({Http(200, kJsonKeys), Http(200, StsAnswer("AssumeRole", "ROLE"))}), "ROLE");
  EXPECT_THAT(asked_,
              ::testing::ElementsAre("GET http://169.254.170.2/v2/x", "POST https://sts.eu-west-1.amazonaws.com/"));
  config_ = "[default]\nrole_arn = R\ncredential_source = Ec2InstanceMetadata\n";
  EXPECT_THAT((*Find())->Name(), HasSubstr("role R by the instance metadata service"));
}

TEST_F(CredentialSourcesTest, Process) {
  config_ = "[default]\ncredential_process = helper --password CANARY\n";
  ExpectKeys(Fetch({File(R"({"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": "CANARY-S"})")}));
  EXPECT_EQ(asked_[0], "run helper --password CANARY");
  auto result = Fetch({CredentialInput{absl::UnavailableError("failed with exit status 1"), 0, "", std::nullopt}});
  EXPECT_EQ(result.status().message(),
            "AWS credentials from credential_process of profile 'default': it failed with exit status 1; run it by "
            "hand to see why");
  EXPECT_FALSE(Fetch({File("CANARY")}).ok());
  EXPECT_FALSE(Fetch({File(R"({"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": "S",
                               "Expiration": "2025-12-31T00:00:00Z"})")})
                   .ok());
}

TEST_F(CredentialSourcesTest, Sso) {
  config_ =
      "[sso-session team]\nsso_start_url = https://x/start\nsso_region = eu-north-1\n"
      "[default]\nsso_session = team\nsso_account_id = 123\nsso_role_name = Read Only\n";
  const std::string token = R"({"accessToken": "CANARY-token", "expiresAt": "2026-01-01T08:00:00Z"})";
  const std::string keys =
      R"({"roleCredentials": {"accessKeyId": "AK", "secretAccessKey": "CANARY-S", "sessionToken": "T",
          "expiration": 1767229200000}})";
  ExpectKeys(Fetch({File(token), Http(200, keys)}));
  // The name of the file is the SHA-1 of "team".
  EXPECT_THAT(asked_,
              ::testing::ElementsAre("file /home/me/.aws/sso/cache/d25187dc137f35c88bc80ec8c3ffbdb17b5eb873.json",
                                     "GET https://portal.sso.eu-north-1.amazonaws.com/federation/"
                                     "credentials?role_name=Read%20Only&account_id=123"));
  EXPECT_EQ(Header(0, "x-amz-sso_bearer_token"), "CANARY-token");
  const auto message = [this](std::vector<CredentialInput> answers) {
    return std::string(Fetch(std::move(answers)).status().message());
  };
  constexpr char kLogin[] = "aws sso login --profile default";
  EXPECT_THAT(message({CredentialInput{absl::NotFoundError("x"), 0, "", std::nullopt}}), HasSubstr(kLogin));
  EXPECT_THAT(message({File("CANARY")}), HasSubstr(kLogin));
  EXPECT_THAT(message({File(R"({"accessToken": "CANARY", "expiresAt": "2025-12-31T00:00:00Z"})")}),
              AllOf(HasSubstr("expired"), HasSubstr(kLogin)));
  EXPECT_THAT(message({File(token), Http(401, "CANARY")}), HasSubstr(kLogin));
  EXPECT_THAT(message({File(token), Http(403, "CANARY")}), HasSubstr("sso_role_name"));
  EXPECT_THAT(message({File(token), Http(200, "CANARY")}), HasSubstr("portal's answer"));
  EXPECT_THAT(message({File(token), Broken()}), HasSubstr("connection refused"));
}

class SsoRenewalTest : public CredentialSourcesTest {
 protected:
  SsoRenewalTest() {
    config_ =
        "[sso-session team]\nsso_start_url = https://x/start\nsso_region = eu-north-1\n"
        "[default]\nsso_session = team\nsso_account_id = 123\nsso_role_name = r\n";
  }
  static std::string Cached(const std::string& expires, const std::string& registration = "2026-02-01T00:00:00Z") {
    return R"({"startUrl": "https://x/start", "accessToken": "CANARY-old", "expiresAt": ")" + expires +
           R"(", "clientId": "id", "clientSecret": "CANARY-client", "refreshToken": "CANARY-refresh",
               "registrationExpiresAt": ")" +
           registration + "\"}";
  }
  std::string Message(std::vector<CredentialInput> answers) {
    return std::string(Fetch(std::move(answers)).status().message());
  }

  const std::string expired_ = Cached("2025-12-31T23:00:00Z");
  const std::string renewed_ =
      R"({"accessToken": "CANARY-new", "expiresIn": 3600, "refreshToken": "CANARY-next", "tokenType": "Bearer"})";
  const std::string keys_ =
      R"({"roleCredentials": {"accessKeyId": "AK", "secretAccessKey": "CANARY-S", "sessionToken": "T",
          "expiration": 1767229200000}})";
  const std::string path_ = "/home/me/.aws/sso/cache/d25187dc137f35c88bc80ec8c3ffbdb17b5eb873.json";
  const std::string oidc_ = "POST https://oidc.eu-north-1.amazonaws.com/token";
  const std::string portal_ =
      "GET https://portal.sso.eu-north-1.amazonaws.com/federation/credentials?role_name=r&account_id=123";
};

TEST_F(SsoRenewalTest, AnExpiredTokenIsRenewedAndKept) {
  for (const char* expires : {"2025-12-31T23:00:00Z", "2026-01-01T00:00:30Z", "2026-01-01T00:00:30UTC"}) {
    ExpectKeys(Fetch({File(Cached(expires)), Http(503, ""), Http(200, renewed_), File(""), Http(200, keys_)}));
    EXPECT_THAT(asked_, ::testing::ElementsAre("file " + path_, oidc_, oidc_, "write " + path_, portal_));
  }
  EXPECT_EQ(calls_[0].body, R"({"clientId":"id","clientSecret":"CANARY-client","grantType":"refresh_token",)"
                            R"("refreshToken":"CANARY-refresh"})");
  EXPECT_EQ(Header(0, "Content-Type"), "application/json");
  EXPECT_EQ(Header(0, "Host"), "oidc.eu-north-1.amazonaws.com");
  EXPECT_EQ(Header(0, "Authorization"), "(none)");
  EXPECT_EQ(Header(2, "x-amz-sso_bearer_token"), "CANARY-new");
  const absl::StatusOr<SsoToken> kept = ParseSsoTokenJson(written_);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->access_token, "CANARY-new");
  EXPECT_GT(kept->expires, kNow + absl::Minutes(59));
  EXPECT_LT(kept->expires, kNow + absl::Minutes(61));
  EXPECT_EQ(kept->refresh_token, "CANARY-next");
  EXPECT_EQ(kept->client_secret, "CANARY-client");
  EXPECT_EQ(kept->registration_expires, kNow + absl::Hours(31 * 24));
  EXPECT_THAT(written_, HasSubstr(R"("startUrl":"https://x/start")")) << "what is not ours stays";
  // A disk that is full is no reason to stop.
  ExpectKeys(Fetch({File(expired_), Http(200, renewed_), Broken(), Http(200, keys_)}));
  // Without a new refresh token the old one stays.
  ExpectKeys(Fetch(
      {File(expired_), Http(200, R"({"accessToken": "CANARY-new", "expiresIn": 60})"), File(""), Http(200, keys_)}));
  EXPECT_THAT(written_, HasSubstr("CANARY-refresh"));
  variables_["AWS_ENDPOINT_URL_SSO_OIDC"] = "http://127.0.0.1:7/base";
  ExpectKeys(Fetch({File(expired_), Http(200, renewed_), File(""), Http(200, keys_)}));
  EXPECT_EQ(asked_[1], "POST http://127.0.0.1/base/token");
}

TEST_F(SsoRenewalTest, ATokenThatLastsIsNotRenewed) {
  ExpectKeys(Fetch({File(Cached("2026-01-01T00:02:00Z")), Http(200, keys_)}));
  EXPECT_THAT(asked_, ::testing::ElementsAre("file " + path_, portal_));
}

TEST_F(SsoRenewalTest, WhatCannotBeRenewedAsksForALogin) {
  constexpr char kLogin[] = "run `aws sso login --profile default`";
  EXPECT_THAT(Message({File(Cached("2025-12-31T23:00:00Z", "2025-12-31T23:59:59Z"))}), HasSubstr(kLogin));
  EXPECT_TRUE(calls_.empty()) << "the client's registration has ended";
  for (const char* lacking : {"refreshToken", "clientId", "clientSecret", "registrationExpiresAt"}) {
    std::string file = expired_;
    file.replace(file.find(lacking), 1, "X");
    EXPECT_THAT(Message({File(file)}), AllOf(HasSubstr("expired"), HasSubstr(kLogin)));
    EXPECT_TRUE(calls_.empty()) << lacking;
  }
  EXPECT_THAT(Message({File(expired_), Http(400, R"({"error": "invalid_grant CANARY"})"), File(expired_)}),
              AllOf(HasSubstr("HTTP 400"), HasSubstr(kLogin)));
  EXPECT_EQ(calls_.size(), 1u);
  EXPECT_THAT(Message({File(expired_), Http(503, "CANARY")}), HasSubstr("check sso_region and the network"));
  for (const char* answer : {"CANARY", R"({"accessToken": "CANARY"})", R"({"accessToken": "CANARY\n", "expiresIn": 9})",
                             R"({"accessToken": "CANARY", "expiresIn": 0})",
                             R"({"accessToken": "CANARY", "expiresIn": 18446744073709551615})",
                             R"({"accessToken": "CANARY", "expiresIn": "CANARY"})", R"({"expiresIn": 9})"}) {
    EXPECT_THAT(Message({File(expired_), Http(200, answer)}), HasSubstr(kLogin)) << answer;
    EXPECT_EQ(asked_.size(), 2u) << "nothing is written";
  }
}

TEST_F(SsoRenewalTest, AnotherProcessMayHaveBeenQuicker) {
  ExpectKeys(Fetch({File(expired_), Http(400, ""), File(Cached("2026-01-01T08:00:00Z")), Http(200, keys_)}));
  EXPECT_THAT(asked_, ::testing::ElementsAre("file " + path_, oidc_, "file " + path_, portal_));
}

TEST_F(CredentialSourcesTest, Container) {
  variables_.insert({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials?a=b"},
                     {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "CANARY-plain"}});
  ExpectKeys(Fetch({Http(200, kJsonKeys)}));
  EXPECT_EQ(asked_[0], "GET http://169.254.170.23/v1/credentials?a=b");
  EXPECT_EQ(Header(0, "Authorization"), "CANARY-plain");
  variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/token";
  ExpectKeys(Fetch({File("CANARY-file\n"), Http(500, ""), Broken(), Http(200, kJsonKeys)}));
  EXPECT_EQ(asked_[0], "file /token");
  EXPECT_EQ(Header(2, "Authorization"), "CANARY-file");
  EXPECT_FALSE(Fetch({File("CANARY\r\nInjected: yes")}).ok());
  EXPECT_THAT(calls_, IsEmpty());
  EXPECT_THAT(std::string(Fetch({File("CANARY"), Http(404, "CANARY")}).status().message()), HasSubstr("HTTP 404"));
  EXPECT_FALSE(Fetch({File("t"), Http(200, "CANARY")}).ok());
}

TEST_F(CredentialSourcesTest, ContainerTokensGoToNoStrangers) {
  for (const char* url :
       {"https://anywhere.example/x", "http://127.0.0.1:80/x", "http://127.8.9.1/x", "http://localhost:9/x",
        "http://[::1]:9/x", "http://169.254.170.2/x", "http://169.254.170.23", "http://[fd00:ec2::23]/x"}) {
    EXPECT_TRUE(ParseContainerUri("", url).ok()) << url;
  }
  for (const char* url :
       {"http://anywhere.example/x", "http://169.254.169.254/x", "http://127.0.0.1.evil.example/x", "http://127.1/x",
        "http://127.0.0.256/x", "http://127.0.0.1.1/x", "http://[fd00:ec2::24]/x", "ftp://127.0.0.1/x",
        "http://127.0.0.1@evil.example/x", "http://127.0.0.1:99999/x", "", "/x", "http://127.0.0.1/a b"}) {
    EXPECT_FALSE(ParseContainerUri("", url).ok()) << url;
  }
  EXPECT_EQ(ParseContainerUri("", "https://h?q")->target, "/?q");
  EXPECT_EQ(ParseContainerUri("", "https://h")->target, "/");
  for (const char* path : {".evil.example/x", "@evil.example/x", "x", "/a\r\nHost: x"})
    EXPECT_FALSE(ParseContainerUri(path, "").ok()) << path;
  EXPECT_EQ(ParseContainerUri("/v2/x?id=1", "")->target, "/v2/x?id=1");
}

TEST_F(CredentialSourcesTest, Instance) {
  ExpectKeys(Fetch({Http(200, "CANARY-imds"), Http(200, "my role\n"), Http(200, kJsonKeys)}));
  EXPECT_THAT(asked_,
              ::testing::ElementsAre("PUT http://169.254.169.254/latest/api/token",
                                     "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/",
                                     "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/my%20role"));
  EXPECT_EQ(Header(0, "X-aws-ec2-metadata-token-ttl-seconds"), "21600");
  EXPECT_EQ(Header(2, "X-aws-ec2-metadata-token"), "CANARY-imds");
  EXPECT_LE(calls_[0].timeout, absl::Seconds(1));
  const auto message = [this](std::vector<CredentialInput> answers) {
    return std::string(Fetch(std::move(answers)).status().message());
  };
  // On machines other than EC2 nobody answers.
  EXPECT_THAT(message({Broken()}), AllOf(HasSubstr("no AWS credentials were found; set AWS_ACCESS_KEY_ID"),
                                         HasSubstr("the instance metadata service (169.254.169.254): it does not")));
  EXPECT_EQ(calls_.size(), 2u);
  EXPECT_THAT(message({Http(403, "CANARY")}), HasSubstr("IMDSv2"));
  EXPECT_THAT(message({Http(200, "CANARY"), Http(404, "CANARY")}), HasSubstr("has no role"));
  EXPECT_THAT(message({Http(200, "CANARY"), Http(200, "")}), HasSubstr("has no role"));
  EXPECT_THAT(message({Http(200, "CANARY"), Http(200, "r"), Http(200, R"({"Code": "Failed"})")}),
              HasSubstr("not Success"));
  // The service hands out expired credentials during an outage; the store may take them.
  const std::string expired = R"({"AccessKeyId": "AK", "SecretAccessKey": "CANARY-S", "Token": "CANARY-T",
      "Expiration": "2025-12-31T23:00:00Z"})";
  const CredentialFlow::Result old = Fetch({Http(200, "CANARY-imds"), Http(200, "r"), Http(200, expired)});
  ExpectKeys(old);
  EXPECT_EQ(old->expires, kNow + absl::Minutes(10));
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"] = "IPv6";
  EXPECT_THAT((*Find())->Name(), HasSubstr("[fd00:ec2::254]"));
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1338/";
  EXPECT_THAT((*Find())->Name(), HasSubstr("127.0.0.1:1338"));
}

TEST_F(CredentialSourcesTest, LimitsOfTheInstance) {
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1338/";
  const auto first_call = [this] {
    CredentialAction action = (*Find())->Begin(kNow);
    return std::get<CallAction>(std::move(action));
  };
  EXPECT_EQ(first_call().timeout, absl::Seconds(1));
  EXPECT_EQ(first_call().attempts, 2);
  variables_["AWS_METADATA_SERVICE_TIMEOUT"] = "30";
  variables_["AWS_METADATA_SERVICE_NUM_ATTEMPTS"] = "5";
  EXPECT_EQ(first_call().timeout, absl::Seconds(30));
  EXPECT_EQ(first_call().attempts, 5);
  for (const char* wrong : {"0", "-1", "1001", "x"}) {
    variables_["AWS_METADATA_SERVICE_TIMEOUT"] = wrong;
    EXPECT_THAT(std::string(Find().status().message()), HasSubstr("AWS_METADATA_SERVICE_TIMEOUT")) << wrong;
  }
}

}  // namespace
}  // namespace millrace
