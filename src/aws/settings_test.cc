#include "aws/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/crypto.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ProcessEnvironment, WritesSecretsForThisUserOnly) {
  const std::string path = ::testing::TempDir() + "millrace-sso-" + RandomHex(8) + "/cache/token.json";
  for (const char* text : {"first", "second"}) {
    const absl::Status written = ProcessEnvironment().write_file(path, text);
    ASSERT_TRUE(written.ok()) << written;
    EXPECT_EQ(*ProcessEnvironment().read_file(path), text);
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::permissions(path, std::filesystem::perms::all);  // as a careless hand may have left it
  }
}

TEST(AwsSettings, KnowWhereTheyComeFrom) {
  const auto settings = AwsSettings::Load({.variable = [](const std::string& name) -> std::optional<std::string> {
                                             if (name == "HOME") return "/me";
                                             if (name == "AWS_REGION") return "eu-west-1";
                                             return std::nullopt;
                                           },
                                           .read_file = [](const std::string& path) -> absl::StatusOr<std::string> {
                                             return path == "/me/.aws/config"
                                                        ? "[default]\na = 1\nregion = x\n[other]\nc = 3\n"
                                                        : "[default]\na = 2\n";
                                           }});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->Origin({"AWS_DEFAULT_REGION", "AWS_REGION"}, "region"), "AWS_REGION");
  EXPECT_EQ(settings->Origin({}, "region"), "the profile 'default' in /me/.aws/config");
  EXPECT_EQ(settings->Origin({}, "a"), "the profile 'default' in /me/.aws/credentials");
  EXPECT_EQ(settings->Profile("a"), "2");
  EXPECT_EQ(settings->Origin({"UNSET"}, "c"), "");
}

TEST(Profiles, SectionsSettingsAndComments) {
  const auto profiles = ParseProfiles(
      "# comment\r\n; comment\n\n[default]\nregion = us-east-1 # why\nOUTPUT=json;not a comment\n  [ profile \"my "
      "team\" ]\n"
      "s3 =\n  addressing_style = path # why\n\tindented = 1\n  no setting\ntext = a\n  b = c\nempty =\n[sso-session "
      "x]\nregion = nowhere\n[plain]\na = b = "
      "c\n[default]\nlate = 1");
  ASSERT_TRUE(profiles.ok()) << profiles.status();
  EXPECT_EQ(profiles->profiles.size(), 3u);
  EXPECT_THAT(profiles->sso_sessions.at("x"), ElementsAre(Pair("region", "nowhere")));
  EXPECT_THAT(profiles->profiles.at("default"),
              ElementsAre(Pair("late", "1"), Pair("output", "json;not a comment"), Pair("region", "us-east-1")));
  EXPECT_THAT(profiles->profiles.at("my team"),
              ElementsAre(Pair("empty", ""), Pair("s3", ""), Pair("s3.addressing_style", "path"),
                          Pair("s3.indented", "1"), Pair("text", "a")));
  EXPECT_THAT(profiles->profiles.at("plain"), ElementsAre(Pair("a", "b = c")));
  EXPECT_TRUE(ParseProfiles("")->profiles.empty());
  const auto services = ParseProfiles("[services x]\na = b\n  more of it\nc =\n  d = 1\n  more\n");
  EXPECT_TRUE(services->profiles.empty());
  EXPECT_THAT(services->services.at("x"), ElementsAre(Pair("a", "b"), Pair("c", ""), Pair("c.d", "1")));
  EXPECT_THAT(ParseProfiles("\xEF\xBB\xBF[a]\nregion: eu-west-1\nurl = http://x:1\n")->profiles.at("a"),
              ElementsAre(Pair("region", "eu-west-1"), Pair("url", "http://x:1")));
  // Only what is indented further than the setting above belongs to it.
  EXPECT_THAT(ParseProfiles("[a]\n  s3 =\n    x = 1\n  y = 2\nz = 3\n")->profiles.at("a"),
              ElementsAre(Pair("s3", ""), Pair("s3.x", "1"), Pair("y", "2"), Pair("z", "3")));
}

TEST(Profiles, BrokenLinesAreNamed) {
  const auto message = [](const char* text) { return std::string(ParseProfiles(text).status().message()); };
  EXPECT_THAT(message("[a]\n\nnonsense\n"), HasSubstr("line 3"));
  EXPECT_THAT(message("[a]\n= value\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("a = b\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("[a"), HasSubstr("line 1"));
}

TEST(AwsChoice, ReplacesVariables) {
  const AwsEnvironment below{.variable = [](const std::string& name) -> std::optional<std::string> { return name; }};
  const AwsEnvironment same = WithChoice(below, {});
  EXPECT_EQ(same.variable("AWS_PROFILE"), "AWS_PROFILE");
  EXPECT_EQ(same.variable("AWS_ACCESS_KEY_ID"), "AWS_ACCESS_KEY_ID");
  const AwsEnvironment chosen =
      WithChoice(below, {.endpoint_url = "http://a:1", .profile = "lab", .region = "eu-west-1"});
  EXPECT_EQ(chosen.variable("AWS_ENDPOINT_URL_S3"), "http://a:1");
  EXPECT_EQ(chosen.variable("AWS_PROFILE"), "lab");
  EXPECT_EQ(chosen.variable("AWS_REGION"), "eu-west-1");
  for (const char* name : kIdentityVariables) EXPECT_EQ(chosen.variable(name), std::nullopt) << name;
  EXPECT_EQ(chosen.variable("HOME"), "HOME");
  // Keys of the environment stay without a profile.
  EXPECT_EQ(WithChoice(below, {.region = "x"}).variable("AWS_ACCESS_KEY_ID"), "AWS_ACCESS_KEY_ID");
}

}  // namespace
}  // namespace millrace
