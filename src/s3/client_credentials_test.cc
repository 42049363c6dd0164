// These tests use credentials from end to end: a client whose settings name a source, a server that plays the source,
// and a store that says whose request it got.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "aws/credential_loader.h"
#include "net/testing/scripted_server.h"
#include "s3/client.h"
#include "s3/config.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string SourceAnswer(int status, const std::string& body, const std::string& more = "") {
  return "HTTP/1.1 " + std::to_string(status) + " Scripted\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         more + "\r\n" + body;
}

std::string InAnHour() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now() + absl::Hours(1), absl::UTCTimeZone());
}

std::string JsonKeys(const std::string& key = "AK") {
  return R"({"AccessKeyId": ")" + key + R"(", "SecretAccessKey": "CANARY-S", "Token": "CANARY-T", "Expiration": ")" +
         InAnHour() + "\"}";
}

std::string AnswerOfSts(const std::string& action) {
  return "<" + action + "Response><" + action +
         "Result><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>CANARY-S</SecretAccessKey>"
         "<SessionToken>CANARY-T</SessionToken><Expiration>" +
         InAnHour() + "</Expiration></Credentials></" + action + "Result></" + action + "Response>";
}

class CredentialLoaderTest : public ::testing::Test {
 protected:
  CredentialLoaderTest() {
    variables_ = {{"HOME", "/home/me"}, {"AWS_ENDPOINT_URL_S3", Url(store_)}, {"AWS_MAX_ATTEMPTS", "1"}};
    ::testing::internal::CaptureStderr();
  }
  ~CredentialLoaderTest() override {
    client_.reset();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("CANARY")));
  }

  static std::string Url(const ScriptedServer& server) { return "http://127.0.0.1:" + std::to_string(server.port()); }

  /// Sets the answers of the source to each request, by its beginning: "GET /x".
  void Source(std::map<std::string, std::string> answers) {
    source_.emplace([this, answers = std::move(answers)](ScriptedConnection& connection) {
      for (std::string request; !(request = connection.ReadRequest()).empty();) {
        const std::string line = request.substr(0, request.find(" HTTP/1.1"));
        std::unique_lock lock(mutex_);
        source_requests_.push_back(request);
        lock.unlock();
        hold_.wait();
        const auto at = answers.find(line);
        connection.Send(at == answers.end() ? SourceAnswer(404, "CANARY") : at->second);
      }
    });
  }
  std::string SourceRequest(size_t i) {
    std::lock_guard lock(mutex_);
    return i < source_requests_.size() ? source_requests_[i] : "";
  }
  size_t SourceRequests() {
    std::lock_guard lock(mutex_);
    return source_requests_.size();
  }

  S3Client& Client() {
    if (client_) return *client_;
    const AwsEnvironment environment = {
        .variable = [this](const std::string& name) -> std::optional<std::string> {
          const auto at = variables_.find(name);
          return at == variables_.end() ? std::nullopt : std::optional(at->second);
        },
        .read_file = [this](const std::string& path) -> absl::StatusOr<std::string> {
          std::lock_guard lock(mutex_);
          const auto at = files_.find(path);
          return at == files_.end() ? absl::StatusOr<std::string>(absl::NotFoundError(path)) : at->second;
        },
        .write_file =
            [this](const std::string& path, const std::string& contents) {
              std::lock_guard lock(mutex_);
              if (read_only_) return absl::PermissionDeniedError("cannot be written");
              files_[path] = contents;
              return absl::OkStatus();
            }};
    absl::StatusOr<S3Config> config = LoadS3Config(environment);
    EXPECT_TRUE(config.ok()) << config.status();
    return client_.emplace(runtime_, *config);
  }

  using Result = absl::StatusOr<GetResult>;
  struct Get {
    std::string buffer = std::string(4, '\0');
    std::promise<Result> done;
    RequestProgress progress{RequestPhase::kDone};
    std::stop_source stop;
    Result Wait() {
      Result result = done.get_future().get();
      EXPECT_THAT(std::string(result.status().message()), Not(HasSubstr("CANARY")));
      return result;
    }
  };
  void Start(Get& get) {
    GetOptions options;
    options.range = {0, 4};
    options.progress = &get.progress;
    options.stop = get.stop.get_token();
    Client().Get("bucket", "key", {reinterpret_cast<std::byte*>(get.buffer.data()), 4}, std::move(options),
                 [&get](Result result) { get.done.set_value(std::move(result)); });
  }
  Result Run() {
    Get get;
    Start(get);
    return get.Wait();
  }
  static void Await(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(300);
    while (!condition() && absl::Now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(condition());
  }
  void ExpectSignedBy(const std::string& key, const std::string& token = "CANARY-T") {
    const Result result = Run();
    ASSERT_TRUE(result.ok()) << result.status();
    std::lock_guard lock(mutex_);
    EXPECT_THAT(store_requests_.back(), HasSubstr("Credential=" + key + "/"));
    EXPECT_THAT(store_requests_.back(), HasSubstr("x-amz-security-token: " + token));
  }

  std::map<std::string, std::string> variables_;
  std::mutex mutex_;
  std::map<std::string, std::string> files_;
  bool read_only_ = false;
  std::vector<std::string> store_requests_;
  std::vector<std::string> source_requests_;
  std::promise<void> release_;
  std::shared_future<void> hold_ = [this] {
    release_.set_value();
    return release_.get_future().share();
  }();
  Runtime runtime_{{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 20}};
  // Takes every signature but that of a key which has expired.
  ScriptedServer store_{[this](ScriptedConnection& connection) {
    for (std::string request; !(request = connection.ReadRequest()).empty();) {
      const bool expired = request.find("Credential=EXPIRED/") != std::string::npos;
      std::unique_lock lock(mutex_);
      store_requests_.push_back(std::move(request));
      lock.unlock();
      connection.Send(expired ? SourceAnswer(400, "<Error><Code>ExpiredToken</Code></Error>")
                              : SourceAnswer(206, "data", "ETag: \"e\"\r\nContent-Range: bytes 0-3/4\r\n"));
    }
  }};
  std::optional<ScriptedServer> source_;
  std::optional<S3Client> client_;
};

TEST_F(CredentialLoaderTest, WebIdentity) {
  Source({{"POST /", SourceAnswer(200, AnswerOfSts("AssumeRoleWithWebIdentity"))}});
  files_["/token"] = "CANARY-jwt\n";
  variables_.insert(
      {{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"}, {"AWS_ROLE_ARN", "r"}, {"AWS_ENDPOINT_URL_STS", Url(*source_)}});
  ExpectSignedBy("AK");
  EXPECT_THAT(SourceRequest(0), HasSubstr("&WebIdentityToken=CANARY-jwt"));
}

TEST_F(CredentialLoaderTest, RoleOfAProfile) {
  Source({{"POST /", SourceAnswer(200, AnswerOfSts("AssumeRole"))}});
  files_["/home/me/.aws/config"] =
      "[default]\nrole_arn = r\nsource_profile = base\n"
      "[profile base]\naws_access_key_id = BASE\naws_secret_access_key = CANARY\n";
  variables_["AWS_ENDPOINT_URL_STS"] = Url(*source_);
  ExpectSignedBy("AK");
  EXPECT_THAT(SourceRequest(0), AllOf(HasSubstr("Credential=BASE/"), HasSubstr("Action=AssumeRole&")));
}

TEST_F(CredentialLoaderTest, Sso) {
  Source({{"GET /federation/credentials?role_name=r&account_id=1",
           SourceAnswer(200, R"({"roleCredentials": {"accessKeyId": "AK", "secretAccessKey": "CANARY-S",
                           "sessionToken": "CANARY-T", "expiration": )" +
                                 std::to_string(absl::ToUnixMillis(absl::Now() + absl::Hours(1))) + "}}")}});
  files_["/home/me/.aws/config"] =
      "[default]\nsso_session = team\nsso_account_id = 1\nsso_role_name = r\n[sso-session team]\nsso_region = x\n";
  files_["/home/me/.aws/sso/cache/d25187dc137f35c88bc80ec8c3ffbdb17b5eb873.json"] =
      R"({"accessToken": "CANARY-sso", "expiresAt": ")" + InAnHour() + "\"}";
  variables_["AWS_ENDPOINT_URL_SSO"] = Url(*source_);
  ExpectSignedBy("AK");
  EXPECT_THAT(SourceRequest(0), HasSubstr("x-amz-sso_bearer_token: CANARY-sso"));
}

TEST_F(CredentialLoaderTest, AnSsoTokenIsRenewedAndKept) {
  constexpr char kCache[] = "/home/me/.aws/sso/cache/d25187dc137f35c88bc80ec8c3ffbdb17b5eb873.json";
  Source({{"POST /token", SourceAnswer(200, R"({"accessToken": "CANARY-new", "expiresIn": 3600})")},
          {"GET /federation/credentials?role_name=r&account_id=1",
           SourceAnswer(200, R"({"roleCredentials": {"accessKeyId": "AK", "secretAccessKey": "CANARY-S",
                           "sessionToken": "CANARY-T", "expiration": )" +
                                 std::to_string(absl::ToUnixMillis(absl::Now() + absl::Hours(1))) + "}}")}});
  files_["/home/me/.aws/config"] =
      "[default]\nsso_session = team\nsso_account_id = 1\nsso_role_name = r\n[sso-session team]\nsso_region = x\n";
  variables_["AWS_ENDPOINT_URL_SSO"] = variables_["AWS_ENDPOINT_URL_SSO_OIDC"] = Url(*source_);
  for (const bool read_only : {true, false}) {
    read_only_ = read_only;
    files_[kCache] = R"({"accessToken": "CANARY-old", "expiresAt": "2020-01-01T00:00:00Z", "clientId": "c",
                         "clientSecret": "CANARY-c", "refreshToken": "CANARY-r", "registrationExpiresAt": ")" +
                     InAnHour() + "\"}";
    client_.reset();
    ExpectSignedBy("AK");
  }
  EXPECT_EQ(SourceRequests(), 4u);
  EXPECT_THAT(SourceRequest(2), HasSubstr(R"("refreshToken":"CANARY-r")"));
  EXPECT_THAT(SourceRequest(3), HasSubstr("x-amz-sso_bearer_token: CANARY-new"));
  EXPECT_THAT(files_[kCache], HasSubstr("CANARY-new"));
}

TEST_F(CredentialLoaderTest, Container) {
  Source({{"GET /v1?a=b", SourceAnswer(200, JsonKeys())}});
  files_["/token"] = "CANARY-pod";
  variables_.insert({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", Url(*source_) + "/v1?a=b"},
                     {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/token"}});
  ExpectSignedBy("AK");
  EXPECT_THAT(SourceRequest(0), HasSubstr("Authorization: CANARY-pod\r\n"));
}

TEST_F(CredentialLoaderTest, Instance) {
  Source({{"PUT /latest/api/token", SourceAnswer(200, "CANARY-imds")},
          {"GET /latest/meta-data/iam/security-credentials/", SourceAnswer(200, "role")},
          {"GET /latest/meta-data/iam/security-credentials/role", SourceAnswer(200, JsonKeys())}});
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = Url(*source_);
  ExpectSignedBy("AK");
  EXPECT_THAT(SourceRequest(2), HasSubstr("X-aws-ec2-metadata-token: CANARY-imds\r\n"));
}

TEST_F(CredentialLoaderTest, AnInstanceServiceThatHangsIsGivenUp) {
  ScriptedServer silent([](ScriptedConnection& connection) { connection.WaitForClose(); });
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = Url(silent);
  const Result result = Run();
  EXPECT_TRUE(absl::IsUnauthenticated(result.status()));
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("s3://bucket/key"), HasSubstr("set AWS_ACCESS_KEY_ID"), HasSubstr("does not answer")));
  EXPECT_EQ(silent.connections(), 2);
}

TEST_F(CredentialLoaderTest, Process) {
  files_["/home/me/.aws/config"] =
      "[default]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"AK\", \"SecretAccessKey\": "
      "\"CANARY-S\", \"SessionToken\": \"CANARY-T\"}'\n";
  ExpectSignedBy("AK");
}

TEST_F(CredentialLoaderTest, AProcessIsKilledWhenTheClientCloses) {
  files_["/home/me/.aws/config"] = "[default]\ncredential_process = sleep 3000\n";
  Get get;
  Start(get);
  Await([&] { return get.progress == RequestPhase::kCredentials; });
  const absl::Time start = absl::Now();
  client_.reset();
  EXPECT_TRUE(absl::IsCancelled(get.Wait().status()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(300));
}

TEST_F(CredentialLoaderTest, AllRequestsWaitForOneFetchAndSaySo) {
  std::promise<void> release;
  hold_ = release.get_future().share();
  Source({{"GET /", SourceAnswer(200, JsonKeys())}});
  variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = Url(*source_);
  std::vector<Get> gets(200);
  for (Get& get : gets) Start(get);
  for (Get& get : gets) Await([&] { return get.progress == RequestPhase::kCredentials; });
  gets[7].stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(gets[7].Wait().status())) << "who waits can be stopped";
  EXPECT_EQ(store_.connections(), 0);
  release.set_value();
  for (size_t i = 0; i < gets.size(); ++i) {
    if (i == 7) continue;
    EXPECT_TRUE(gets[i].Wait().ok());
  }
  EXPECT_EQ(SourceRequests(), 1u);
}

TEST_F(CredentialLoaderTest, TheClientClosesWhileASourceHangs) {
  ScriptedServer silent([](ScriptedConnection& connection) { connection.WaitForClose(); });
  variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = Url(silent);
  std::vector<Get> gets(10);
  for (Get& get : gets) Start(get);
  Await([&] { return silent.connections() > 0; });
  client_.reset();
  for (Get& get : gets) EXPECT_TRUE(absl::IsCancelled(get.Wait().status()));
}

TEST_F(CredentialLoaderTest, ExpiredKeysOfAProfileAreReadAgainOnce) {
  const auto keys = [](const std::string& key) {
    return "[default]\naws_access_key_id = " + key + "\naws_secret_access_key = CANARY\naws_session_token = CANARY-T\n";
  };
  files_["/home/me/.aws/credentials"] = keys("EXPIRED");
  Client();
  {
    std::lock_guard lock(mutex_);
    files_["/home/me/.aws/credentials"] = keys("FRESH");  // as `aws sso login` and its like do it
  }
  ExpectSignedBy("FRESH");
  EXPECT_EQ(store_requests_.size(), 2u);
}

TEST_F(CredentialLoaderTest, KeysThatStayExpiredAreAnErrorWithARemedy) {
  files_["/home/me/.aws/credentials"] =
      "[default]\naws_access_key_id = EXPIRED\naws_secret_access_key = CANARY\naws_session_token = CANARY-T\n";
  const Result result = Run();
  EXPECT_TRUE(absl::IsUnauthenticated(result.status()));
  EXPECT_THAT(std::string(result.status().message()), AllOf(HasSubstr("ExpiredToken"), HasSubstr("renew")));
  EXPECT_EQ(store_requests_.size(), 2u);
  EXPECT_FALSE(Run().ok());
  EXPECT_EQ(store_requests_.size(), 3u) << "no fetch for each request";
}

TEST_F(CredentialLoaderTest, ExpiredKeysOfTheEnvironmentAreAnErrorAtOnce) {
  variables_.insert({{"AWS_ACCESS_KEY_ID", "EXPIRED"}, {"AWS_SECRET_ACCESS_KEY", "CANARY"}});
  EXPECT_TRUE(absl::IsUnauthenticated(Run().status()));
  EXPECT_EQ(store_requests_.size(), 1u);
}

TEST_F(CredentialLoaderTest, AFailureNamesTheObjectTheSourceAndTheRemedy) {
  Source({});
  variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = Url(*source_) + "/gone";
  EXPECT_THAT(std::string(Run().status().message()),
              AllOf(HasSubstr("s3://bucket/key: AWS credentials from the container's endpoint"), HasSubstr("HTTP 404"),
                    HasSubstr("check AWS_CONTAINER_CREDENTIALS_FULL_URI")));
}

}  // namespace
}  // namespace millrace
