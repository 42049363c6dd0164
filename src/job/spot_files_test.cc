#include "job/spot_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/usage_error.h"
#include "volume/volume_plan.h"

namespace millrace {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

RunOptions RunOfTest() {
  RunOptions run;
  run.supervisor.command = {"python", "it's.py"};
  run.supervisor.checkpoint = "s3://bucket/run-7/";
  return run;
}

SpotFileOptions Options(const std::string& kind) {
  return {.kind = kind, .ec2 = {}, .kept = {"--retries", "3"}};
}

TEST(SpotFile, UserDataQuoteWordsForTheShell) {
  RunOptions run = RunOfTest();
  SpotFileOptions options = Options("user-data");
  const absl::StatusOr<std::string> text = SpotFile(run, options);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\nCHECKPOINT=s3://bucket/run-7\n"));
  EXPECT_THAT(*text, HasSubstr("\nCOMMAND=(python 'it'\\''s.py')\n"));
  EXPECT_THAT(*text, HasSubstr("--checkpoint \"$CHECKPOINT\" --retries 3 \\\n  --journal \"$WORK/logs/run.jsonl\""));
  EXPECT_THAT(*text, HasSubstr("<<'END_OF_HOOK'\nmillrace sync"));
  EXPECT_THAT(*text, Not(HasSubstr("{{")));
  run.supervisor.on_end = "echo {{journal}}";
  run.journal = "a b";
  options.kept.clear();
  EXPECT_THAT(*SpotFile(run, options), HasSubstr("<<'END_OF_HOOK'\necho {{journal}}\nmillrace sync"));
  EXPECT_THAT(*SpotFile(run, options), HasSubstr("\"$CHECKPOINT\" \\\n  --journal 'a b'"));
}

TEST(SpotFile, AFleetHasALaunchForEachType) {
  RunOptions run = RunOfTest();
  SpotFileOptions options = Options("spot-fleet");
  options.ec2 = {"image=ami-1", "type=p4,p5", "subnet=s", "profile=arn:p", "fleet-role=arn:f"};
  json fleet = json::parse(*SpotFile(run, options));
  ASSERT_EQ(fleet["LaunchSpecifications"].size(), 2u);
  EXPECT_EQ(fleet["LaunchSpecifications"][1]["InstanceType"], "p5");
  EXPECT_FALSE(fleet["LaunchSpecifications"][0].contains("KeyName"));
  EXPECT_FALSE(fleet["LaunchSpecifications"][0].contains("SecurityGroups"));
  EXPECT_EQ(fleet["LaunchSpecifications"][0]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"], 100);
  EXPECT_EQ(fleet["TagSpecifications"][0]["Tags"][0]["Value"], "run-7");
  EXPECT_EQ(fleet["TagSpecifications"][0]["Tags"][1]["Value"], "s3://bucket/run-7");
  options.ec2.insert(options.ec2.end(), {"key-name=k", "security-group=g,h", "disk=7"});
  fleet = json::parse(*SpotFile(run, options));
  const json& launch = fleet["LaunchSpecifications"][0];
  EXPECT_EQ(launch["KeyName"], "k");
  EXPECT_EQ(launch["SecurityGroups"].dump(), R"([{"GroupId":"g"},{"GroupId":"h"}])");
  EXPECT_EQ(launch["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"], 7);
}

std::string Sids(const json& policy) {
  std::string sids;
  for (const json& statement : policy["Statement"]) sids += statement["Sid"].get<std::string>() + " ";
  return sids;
}

TEST(SpotFile, APolicyAllowsWhatTheRunNeeds) {
  RunOptions run = RunOfTest();
  SpotFileOptions options = Options("iam-policy");
  json policy = json::parse(*SpotFile(run, options));
  EXPECT_EQ(Sids(policy), "List KeepCheckpointsAndLogs FindTheFleet EndTheFleet ");
  EXPECT_EQ(policy["Statement"][1]["Resource"], "arn:aws:s3:::bucket/run-7/*");
  run.job.channels = {"train=s3://data/train,mode=Pipe"};
  run.job.output = "s3://out/o";
  policy = json::parse(*SpotFile(run, options));
  EXPECT_EQ(Sids(policy), "List ReadData KeepIndex KeepCheckpointsAndLogs KeepOutput FindTheFleet EndTheFleet ");
  EXPECT_EQ(policy["Statement"][0]["Resource"].dump(),
            R"(["arn:aws:s3:::bucket","arn:aws:s3:::data","arn:aws:s3:::out"])");
  EXPECT_EQ(policy["Statement"][4]["Resource"].dump(), R"(["arn:aws:s3:::out/o/*"])");
}

// A data set, and the resources that its reader and its index need.
struct DataCase {
  const char* uri;
  json read;
  json index;
};

const json& StatementOf(const json& policy, const std::string& sid) {
  for (const json& statement : policy["Statement"])
    if (statement["Sid"] == sid) return statement;
  static const json kNone;
  return kNone;
}

TEST(SpotFile, APolicyGrantsTheDataAndTheirIndexAndNoSiblings) {
  const std::string b = "arn:aws:s3:::b/";
  const std::vector<DataCase> cases = {
      // Only the store knows if this is a folder or an object.
      {"s3://b/train",
       {b + ".millrace/train.index*", b + "train", b + "train/*", b + "train/.millrace/*"},
       {b + ".millrace/train.index*", b + "train/.millrace/*"}},
      {"s3://b/train/", {b + "train/*", b + "train/.millrace/*"}, {b + "train/.millrace/*"}},
      {"s3://b", {b + "*", b + ".millrace/*"}, {b + ".millrace/*"}},
      {"s3://b/", {b + "*", b + ".millrace/*"}, {b + ".millrace/*"}},
      {"s3://b/d/x.tar",
       {b + "d/.millrace/x.tar.index*", b + "d/x.tar", b + "d/x.tar/*", b + "d/x.tar/.millrace/*"},
       {b + "d/.millrace/x.tar.index*", b + "d/x.tar/.millrace/*"}},
      {"s3://b/d/x-{000..123}.tar", {b + "d/.millrace/*", b + "d/x-*"}, {b + "d/.millrace/*"}},
      {"s3://b/d/*.jpg", {b + "d/*", b + "d/.millrace/*"}, {b + "d/.millrace/*"}},
      {"s3://b/a$b/", {b + "a${$}b/*", b + "a${$}b/.millrace/*"}, {b + "a${$}b/.millrace/*"}},
  };
  for (const DataCase& one : cases) {
    RunOptions run = RunOfTest();
    run.supervisor.command.emplace_back(one.uri);
    const json policy = json::parse(*SpotFile(run, Options("iam-policy")));
    const json& read = StatementOf(policy, "ReadData");
    const json& index = StatementOf(policy, "KeepIndex");
    EXPECT_EQ(read["Action"].dump(), R"(["s3:GetObject"])");
    EXPECT_EQ(index["Action"].dump(), R"(["s3:PutObject","s3:DeleteObject","s3:AbortMultipartUpload"])");
    EXPECT_EQ(read["Resource"], one.read) << one.uri;
    EXPECT_EQ(index["Resource"], one.index) << one.uri;
  }
}

TEST(SpotFile, APolicyNamesAccessPoints) {
  RunOptions run = RunOfTest();
  run.job.channels = {"train=s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/p/set"};
  const json policy = json::parse(*SpotFile(run, Options("iam-policy")));
  const std::string point = "arn:aws:s3:eu-west-1:123456789012:accesspoint/p";
  EXPECT_THAT(policy.dump(), HasSubstr("\"" + point + "\""));
  EXPECT_THAT(policy.dump(), HasSubstr("\"" + point + "/object/set/*\""));
}

TEST(SpotFile, APolicyAllowsSessionsOfDirectoryBuckets) {
  RunOptions run = RunOfTest();
  run.job.channels = {"train=s3://data--usw2-az1--x-s3/set"};
  const json policy = json::parse(*SpotFile(run, Options("iam-policy")));
  EXPECT_EQ(Sids(policy), "List UseDirectoryBuckets KeepCheckpointsAndLogs FindTheFleet EndTheFleet ");
  EXPECT_THAT(policy["Statement"][1]["Resource"].dump(), HasSubstr("bucket/data--usw2-az1--x-s3"));
  EXPECT_THAT(policy["Statement"][0].dump(), Not(HasSubstr("x-s3")));
}

TEST(SpotFile, APolicyNamesVolumesByTheirTags) {
  RunOptions run = RunOfTest();
  SpotFileOptions options = Options("iam-policy");
  run.volumes.resize(2);
  run.volumes[0].name = "a";
  run.volumes[1].name = "b$c";
  const json policy = json::parse(*SpotFile(run, options));
  const std::string text = policy.dump();
  EXPECT_THAT(text, HasSubstr(R"("aws:ResourceTag/millrace:volume":["a","b${$}c"])"));
  EXPECT_THAT(text, Not(HasSubstr("{{")));
  EXPECT_EQ(policy["Statement"].size(), 13u);
  // The template has these tags as text.
  for (const std::string_view tag : {kVolumeClaimTag, kVolumeIdTag, kVolumeStateTag, kVolumeNameTag})
    EXPECT_THAT(text, HasSubstr(std::string(tag)));
}

TEST(SpotFile, SaysWhatIsMissing) {
  RunOptions run = RunOfTest();
  SpotFileOptions options = Options("spot-fleet");
  EXPECT_THAT(std::string(SpotFile(run, options).status().message()), HasSubstr("--ec2 image="));
  EXPECT_TRUE(IsUsage(SpotFile(run, options).status()));
  options.ec2 = {"disk=x"};
  EXPECT_THAT(std::string(SpotFile(run, options).status().message()), HasSubstr("number of GiB"));
  options.ec2 = {"disc=1"};
  EXPECT_THAT(std::string(SpotFile(run, options).status().message()), HasSubstr("not 'disc=1'"));
  run.supervisor.checkpoint = "/local";
  EXPECT_THAT(std::string(SpotFile(run, options).status().message()), HasSubstr("--checkpoint s3://"));
}

}  // namespace
}  // namespace millrace
