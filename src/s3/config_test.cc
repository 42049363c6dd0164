#include "s3/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "absl/strings/escaping.h"
#include "base/crypto.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

/// Holds the variables and files of a test.
struct World {
  std::map<std::string, std::string> variables = {{"HOME", "/home/me"}};
  std::map<std::string, std::string> files;

  absl::StatusOr<S3Config> Load() const { return LoadS3Config(Environment()); }
  AwsEnvironment Environment() const {
    return {.variable = [this](const std::string& name) -> std::optional<std::string> {
              const auto at = variables.find(name);
              return at == variables.end() ? std::nullopt : std::optional(at->second);
            },
            .read_file = [this](const std::string& path) -> absl::StatusOr<std::string> {
              const auto at = files.find(path);
              if (at == files.end()) return absl::NotFoundError(path);
              if (at->second == "unreadable") return absl::InvalidArgumentError("cannot be read");
              return at->second;
            }};
  }
};

constexpr char kConfig[] = "/home/me/.aws/config";
constexpr char kCredentials[] = "/home/me/.aws/credentials";

TEST(S3Config, NothingIsSet) {
  World world;
  const auto config = world.Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->endpoint_url, "");
  EXPECT_EQ(config->region, "us-east-1");
  EXPECT_TRUE(config->credentials.anonymous());
  EXPECT_FALSE(config->anonymous);
}

TEST(S3Config, TellsWhoseCredentialsTheyAre) {
  World world;
  const auto principal = [&] { return S3Principal(world.Environment()); };
  EXPECT_EQ(principal(), "instance");
  world.variables["AWS_EC2_METADATA_DISABLED"] = "true";
  EXPECT_EQ(principal(), "unknown") << "there are none";
  world.files[kConfig] =
      "[default]\ncredential_process = /bin/keys\n[profile keys]\naws_access_key_id = AKIA2\n"
      "aws_secret_access_key = s\n[profile role]\nrole_arn = arn:aws:iam::1:role/train\nsource_profile = keys\n"
      "[profile sso]\nsso_start_url = https://x\nsso_region = us-east-1\nsso_account_id = 12\nsso_role_name = read\n";
  EXPECT_THAT(principal(), StartsWith("profile default "));
  const std::string one = principal();
  world.files[kConfig].replace(world.files[kConfig].find("/bin/keys"), 9, "/bin/more");
  EXPECT_NE(principal(), one) << "a command of another file of settings";
  for (const auto& [profile, expected] : std::map<std::string, std::string>{
           {"keys", "key AKIA2"}, {"role", "role arn:aws:iam::1:role/train"}, {"sso", "sso 12/read"}}) {
    world.variables["AWS_PROFILE"] = profile;
    EXPECT_EQ(principal(), expected);
  }
  world.variables.erase("AWS_PROFILE");
  world.variables.insert({{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"}, {"AWS_ROLE_ARN", "arn:aws:iam::1:role/pod"}});
  EXPECT_EQ(principal(), "role arn:aws:iam::1:role/pod");
  world.variables.insert({{"AWS_ACCESS_KEY_ID", "AKIA1"}, {"AWS_SECRET_ACCESS_KEY", "s"}});
  EXPECT_EQ(principal(), "key AKIA1");
  world.variables["MILLRACE_S3_ANONYMOUS"] = "1";
  EXPECT_EQ(principal(), "");
}

// One endpoint serves all pods of a node: only their tokens differ.
TEST(S3Config, ContainersAreToldApartByTheirTokens) {
  World world;
  world.variables.insert({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"},
                          {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/token"}});
  const auto of_subject = [&](const std::string& subject, const std::string& issued) {
    std::string claims;
    absl::WebSafeBase64Escape(R"({"sub":")" + subject + R"(","iat":)" + issued + "}", &claims);
    world.files["/token"] = "e30." + claims + ".c2ln\n";
    return S3Principal(world.Environment());
  };
  const std::string one = of_subject("system:serviceaccount:a:train", "1");
  EXPECT_THAT(one, HasSubstr("system:serviceaccount:a:train"));
  EXPECT_EQ(one, of_subject("system:serviceaccount:a:train", "2")) << "a token that was renewed";
  EXPECT_NE(one, of_subject("system:serviceaccount:b:train", "1"));
  world.files["/token"] = "a token of another kind";
  const std::string other = S3Principal(world.Environment());
  EXPECT_NE(one, other);
  EXPECT_THAT(other, ::testing::Not(HasSubstr("another kind")));
  world.files["/token"] = "a token of yet another kind";
  EXPECT_NE(S3Principal(world.Environment()), other);
}

// A program that knows the path gets the keys of the task.
TEST(S3Config, ThePathOfAContainersEndpointIsNotShown) {
  World world;
  world.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/credentials/CANARY";
  const std::string one = S3Principal(world.Environment());
  EXPECT_THAT(one, AllOf(StartsWith("container "), ::testing::Not(HasSubstr("CANARY"))));
  world.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/credentials/ANOTHER";
  EXPECT_NE(S3Principal(world.Environment()), one);
}

TEST(S3Config, TheEnvironment) {
  World world;
  world.variables.insert({{"AWS_ENDPOINT_URL", "http://127.0.0.1:9000"},
                          {"AWS_ACCESS_KEY_ID", "key"},
                          {"AWS_SECRET_ACCESS_KEY", "secret"},
                          {"AWS_SESSION_TOKEN", "token"},
                          {"AWS_DEFAULT_REGION", "eu-west-1"},
                          {"AWS_CA_BUNDLE", "/ca.pem"}});
  auto config = world.Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->endpoint_url, "http://127.0.0.1:9000");
  EXPECT_EQ(config->credentials.access_key, "key");
  EXPECT_EQ(config->credentials.secret_key, "secret");
  EXPECT_EQ(config->credentials.session_token, "token");
  EXPECT_EQ(config->region, "eu-west-1");
  EXPECT_EQ(config->ca_file, "/ca.pem");
  // The more specific names win.
  world.variables["AWS_ENDPOINT_URL_S3"] = "https://s3.example";
  world.variables["AWS_REGION"] = "eu-north-1";
  config = world.Load();
  EXPECT_EQ(config->endpoint_url, "https://s3.example");
  EXPECT_EQ(config->region, "eu-north-1");
}

TEST(S3Config, ProfileFiles) {
  World world;
  world.files[kConfig] =
      "[default]\nregion = eu-west-2\nendpoint_url=http://default:1\n[profile work]\nregion = ap-south-1\nca_bundle = "
      "/work.pem\n"
      "aws_access_key_id = from-config\naws_secret_access_key = config-secret\n";
  world.files[kCredentials] =
      "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n[work]\naws_access_key_id = WK\n"
      "aws_secret_access_key = WS\naws_session_token = WT\n";
  auto config = world.Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->region, "eu-west-2");
  EXPECT_EQ(config->endpoint_url, "http://default:1");
  EXPECT_EQ(config->credentials.access_key, "AK");
  EXPECT_EQ(config->credentials.session_token, "");

  world.variables["AWS_PROFILE"] = "work";
  config = world.Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->region, "ap-south-1");
  EXPECT_EQ(config->endpoint_url, "");
  EXPECT_EQ(config->ca_file, "/work.pem");
  EXPECT_EQ(config->credentials.access_key, "WK");  // the credentials file wins
  EXPECT_EQ(config->credentials.secret_key, "WS");
  EXPECT_EQ(config->credentials.session_token, "WT");

  // Keys of the environment are taken whole: a profile's token does not belong to them.
  world.variables["AWS_ACCESS_KEY_ID"] = "EK";
  world.variables["AWS_SECRET_ACCESS_KEY"] = "ES";
  config = world.Load();
  EXPECT_EQ(config->credentials.access_key, "EK");
  EXPECT_EQ(config->credentials.session_token, "");
}

TEST(S3Config, OtherPlacesForTheFiles) {
  World world;
  world.variables["AWS_CONFIG_FILE"] = "/etc/aws";
  world.variables["AWS_SHARED_CREDENTIALS_FILE"] = "/etc/keys";
  world.files["/etc/aws"] = "[default]\nregion = eu-west-3\n";
  world.files["/etc/keys"] = "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n";
  const auto config = world.Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->region, "eu-west-3");
  EXPECT_EQ(config->credentials.access_key, "AK");
}

TEST(S3Config, AccessPointsOfOtherRegions) {
  World world;
  EXPECT_TRUE(world.Load()->use_arn_region);
  world.files[kConfig] = "[default]\ns3 =\n  use_arn_region = false\n";
  EXPECT_FALSE(world.Load()->use_arn_region);
  world.variables["AWS_S3_USE_ARN_REGION"] = "true";
  EXPECT_TRUE(world.Load()->use_arn_region);
  world.variables["AWS_S3_USE_ARN_REGION"] = "yes";
  EXPECT_FALSE(world.Load().ok());
}

TEST(S3Config, Attempts) {
  World world;
  EXPECT_EQ(world.Load()->max_attempts, S3Config().max_attempts);
  EXPECT_TRUE(world.Load()->more_attempts_in_storms);
  world.files[kConfig] = "[default]\nmax_attempts = 3\n";
  EXPECT_EQ(world.Load()->max_attempts, 3);
  EXPECT_FALSE(world.Load()->more_attempts_in_storms) << "the user's number is the limit";
  world.variables["AWS_MAX_ATTEMPTS"] = "1";
  EXPECT_EQ(world.Load()->max_attempts, 1);
  for (const char* bad : {"0", "-1", "1.5", "many", "1001", "99999999999", "3 "}) {
    world.variables["AWS_MAX_ATTEMPTS"] = bad;
    const auto config = world.Load();
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("AWS_MAX_ATTEMPTS")) << bad;
  }
}

TEST(S3Config, AddressingStyle) {
  const auto load = [](const char* text) {
    World world;
    world.files[kConfig] = text;
    return world.Load();
  };
  EXPECT_EQ(load("[default]\n")->addressing, S3Addressing::kAuto);
  EXPECT_EQ(load("[default]\ns3 =\n  addressing_style = auto\n")->addressing, S3Addressing::kAuto);
  EXPECT_EQ(load("[default]\ns3 =\n  addressing_style = path\n")->addressing, S3Addressing::kPath);
  EXPECT_EQ(load("[default]\nS3=\n  max_queue_size = 9\n\tAddressing_Style=virtual # why\nregion = auto\n")->addressing,
            S3Addressing::kVirtual);
  // Only an indented line of the s3 section in this profile counts.
  EXPECT_EQ(load("[default]\ns3 =\naddressing_style = path\n")->addressing, S3Addressing::kAuto);
  EXPECT_EQ(load("[default]\ndynamodb =\n  addressing_style = path\n")->addressing, S3Addressing::kAuto);
  EXPECT_EQ(load("[profile other]\ns3 =\n  addressing_style = path\n[default]\n")->addressing, S3Addressing::kAuto);
  EXPECT_EQ(load("[default]\n")->sign_payloads, std::nullopt);
  EXPECT_EQ(load("[default]\ns3 =\n  payload_signing_enabled = True\n")->sign_payloads, true);
  EXPECT_EQ(load("[default]\ns3 =\n  payload_signing_enabled = false\n")->sign_payloads, false);
  EXPECT_THAT(std::string(load("[default]\ns3 =\n  payload_signing_enabled = 1\n").status().message()),
              ::testing::StartsWith("the profile's s3.payload_signing_enabled is '1'"));
  const auto bad = load("[default]\ns3 =\n  addressing_style = host\n");
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("addressing_style"));
}

TEST(S3Config, DualStackAndFips) {
  World world;
  EXPECT_FALSE(world.Load()->aws_endpoint.dual_stack || world.Load()->aws_endpoint.fips);
  world.files[kConfig] = "[default]\nuse_dualstack_endpoint = True\nuse_fips_endpoint = false\n";
  EXPECT_TRUE(world.Load()->aws_endpoint.dual_stack);
  EXPECT_FALSE(world.Load()->aws_endpoint.fips);
  world.variables["AWS_USE_DUALSTACK_ENDPOINT"] = "FALSE";
  world.variables["AWS_USE_FIPS_ENDPOINT"] = "true";
  EXPECT_FALSE(world.Load()->aws_endpoint.dual_stack);
  EXPECT_TRUE(world.Load()->aws_endpoint.fips);
  world.files[kConfig] = "[default]\ns3 =\n  use_dualstack_endpoint = true\n";
  EXPECT_FALSE(world.Load()->aws_endpoint.dual_stack) << "the variable wins";
  world.variables.erase("AWS_USE_DUALSTACK_ENDPOINT");
  EXPECT_TRUE(world.Load()->aws_endpoint.dual_stack);
  world.variables["AWS_USE_FIPS_ENDPOINT"] = "1";
  EXPECT_THAT(std::string(world.Load().status().message()), HasSubstr("AWS_USE_FIPS_ENDPOINT"));
  for (const char* variable : {"AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"}) {
    World custom;
    custom.variables = {{variable, "true"}, {"AWS_ENDPOINT_URL", "http://127.0.0.1:9000"}};
    EXPECT_EQ(custom.Load().status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(custom.Load().status().message()), HasSubstr(variable));
    custom.variables[variable] = "false";
    EXPECT_TRUE(custom.Load().ok());
  }
}

TEST(S3Config, RequesterPaysAndTheChecksumOfUploads) {
  World world;
  EXPECT_FALSE(world.Load()->requester_pays);
  EXPECT_EQ(world.Load()->upload_checksum, ObjectChecksum::Kind::kCrc32c);
  world.variables["MILLRACE_S3_REQUESTER_PAYS"] = "1";
  EXPECT_TRUE(world.Load()->requester_pays);
  world.variables["MILLRACE_S3_ANONYMOUS"] = "1";
  EXPECT_EQ(world.Load().status().code(), absl::StatusCode::kInvalidArgument);
  world.variables["MILLRACE_S3_REQUESTER_PAYS"] = "0";
  EXPECT_FALSE(world.Load()->requester_pays);
  for (const char* name : {"CRC64NVME", "crc64nvme"}) {
    world.variables["MILLRACE_S3_CHECKSUM_ALGORITHM"] = name;
    EXPECT_EQ(world.Load()->upload_checksum, ObjectChecksum::Kind::kCrc64Nvme);
  }
  for (const char* bad : {"MD5", "CRC32", "SHA256", "none"}) {
    world.variables["MILLRACE_S3_CHECKSUM_ALGORITHM"] = bad;
    EXPECT_THAT(std::string(world.Load().status().message()), HasSubstr("CRC32C or CRC64NVME")) << bad;
  }
}

TEST(S3Config, AnonymousByWish) {
  World world;
  world.variables.insert({{"MILLRACE_S3_ANONYMOUS", "1"}, {"AWS_ACCESS_KEY_ID", "key"}});
  const auto config = world.Load();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->anonymous);
  EXPECT_TRUE(config->credentials.anonymous());
  world.variables["MILLRACE_S3_ANONYMOUS"] = "0";
  world.variables["AWS_SECRET_ACCESS_KEY"] = "secret";
  EXPECT_FALSE(world.Load()->anonymous);
}

TEST(S3Config, MistakesAreNamed) {
  const auto message = [](std::initializer_list<std::pair<const std::string, std::string>> variables,
                          std::initializer_list<std::pair<const std::string, std::string>> files = {}) {
    World world;
    world.variables.insert(variables);
    world.files.insert(files);
    const auto config = world.Load();
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(config.status().message());
  };
  EXPECT_THAT(message({{"AWS_ACCESS_KEY_ID", "key"}}), HasSubstr("AWS_SECRET_ACCESS_KEY"));
  EXPECT_THAT(message({{"AWS_SECRET_ACCESS_KEY", "secret"}}), HasSubstr("AWS_ACCESS_KEY_ID"));
  EXPECT_THAT(message({{"AWS_PROFILE", "nobody"}}), HasSubstr("'nobody'"));
  EXPECT_THAT(message({{"AWS_ENDPOINT_URL", "localhost:9000"}}), HasSubstr("localhost:9000"));
  EXPECT_THAT(message({{"AWS_REGION", "no/region"}}), HasSubstr("AWS_REGION"));
  EXPECT_THAT(message({}, {{kConfig, "[default\n"}}), HasSubstr(std::string(kConfig) + ": line 1"));
  EXPECT_THAT(message({}, {{kCredentials, "unreadable"}}), HasSubstr(kCredentials));
  const std::string broken_key = message({{"AWS_ACCESS_KEY_ID", "key"}, {"AWS_SECRET_ACCESS_KEY", "sec\nret"}});
  EXPECT_THAT(broken_key, ::testing::Not(HasSubstr("ret")));
}

TEST(S3Config, TheRealEnvironmentCanBeRead) {
  ASSERT_EQ(::setenv("AWS_CONFIG_FILE", "/dev/null", 1), 0);
  ASSERT_EQ(::setenv("AWS_SHARED_CREDENTIALS_FILE", "/no/such/file", 1), 0);
  ASSERT_EQ(::unsetenv("AWS_PROFILE"), 0);
  ASSERT_EQ(::setenv("AWS_REGION", "eu-central-1", 1), 0);
  const auto config = LoadS3Config();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->region, "eu-central-1");
}

}  // namespace
}  // namespace millrace
