#include "channel/job_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRequest = R"({
  "TrainingJobName": "job-7",
  "RoleArn": "arn:aws:iam::1:role/x",
  "AlgorithmSpecification": {"TrainingImage": "img", "TrainingInputMode": "FastFile"},
  "HyperParameters": {"lr": "0.1", "sagemaker_program": "\"main.py\""},
  "Environment": {"A": "b"},
  "InputDataConfig": [
    {"ChannelName": "train", "ContentType": "text/csv", "DataSource": {"S3DataSource": {
       "S3DataType": "S3Prefix", "S3Uri": "s3://b/train/", "S3DataDistributionType": "ShardedByS3Key", "InstanceGroupNames": ["g"]}}},
    {"ChannelName": "aug", "InputMode": "Pipe", "RecordWrapperType": "RecordIO", "ShuffleConfig": {"Seed": 9},
     "DataSource": {"S3DataSource": {"S3DataType": "AugmentedManifestFile", "S3Uri": "s3://b/m", "AttributeNames": ["a-ref", "b"]}}},
    {"ChannelName": "efs", "InputMode": "File", "DataSource": {"FileSystemDataSource": {
       "FileSystemId": "fs-01234567", "FileSystemAccessMode": "ro", "FileSystemType": "EFS", "DirectoryPath": "/x/y"}}}],
  "OutputDataConfig": {"S3OutputPath": "s3://b/out"},
  "CheckpointConfig": {"S3Uri": "s3://b/ckpt"},
  "ResourceConfig": {"VolumeSizeInGB": 5, "InstanceGroups": [
    {"InstanceGroupName": "g", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
    {"InstanceGroupName": "h", "InstanceType": "ml.p3.2xlarge", "InstanceCount": 1}]},
  "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
  "RetryStrategy": {"MaximumRetryAttempts": 3}
})";
const std::map<std::string, std::string> kFileSystems{{"fs-01234567", "/mnt/efs"}};

TEST(JobRequest, TakesWhatHasAMeaning) {
  const absl::StatusOr<JobRequest> request = ParseJobRequest(kRequest, kFileSystems);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->name, "job-7");
  ASSERT_EQ(request->channels.size(), 3u);
  const Channel& train = request->channels[0];
  EXPECT_EQ(train.uri, "s3://b/train/");
  EXPECT_EQ(train.mode, ChannelMode::kFastFile);
  EXPECT_EQ(train.content_type, "text/csv");
  EXPECT_TRUE(train.sharded);
  EXPECT_THAT(train.groups, ElementsAre("g"));
  const Channel& augmented = request->channels[1];
  EXPECT_EQ(augmented.mode, ChannelMode::kPipe);
  EXPECT_EQ(augmented.type, ChannelType::kAugmentedManifest);
  EXPECT_TRUE(augmented.recordio);
  EXPECT_EQ(augmented.shuffle_seed, 9u);
  EXPECT_THAT(augmented.attributes, ElementsAre("a-ref", "b"));
  EXPECT_EQ(request->channels[2].uri, "/mnt/efs/x/y");
  EXPECT_EQ(request->channels[2].mode, ChannelMode::kFastFile);
  EXPECT_EQ(request->hyperparameters.at("lr"), "0.1");
  EXPECT_EQ(request->environment.at("A"), "b");
  ASSERT_EQ(request->groups.size(), 2u);
  EXPECT_EQ(request->groups[1].name, "h");
  EXPECT_EQ(request->groups[1].type, "ml.p3.2xlarge");
  EXPECT_THAT(request->groups[0].hosts, ElementsAre("algo-1", "algo-2"));
  EXPECT_THAT(request->groups[1].hosts, ElementsAre("algo-3"));
  EXPECT_EQ(request->output_uri, "s3://b/out");
  EXPECT_TRUE(request->output_compressed);
  EXPECT_EQ(request->checkpoint_uri, "s3://b/ckpt");
  EXPECT_EQ(request->max_seconds, 3600u);
  EXPECT_EQ(request->retries, 3u);
  EXPECT_THAT(request->no_effect,
              ElementsAre("RoleArn", "AlgorithmSpecification.TrainingImage",
                          "InputDataConfig[2].DataSource.FileSystemDataSource.FileSystemAccessMode",
                          "InputDataConfig[2].DataSource.FileSystemDataSource.FileSystemType",
                          "ResourceConfig.VolumeSizeInGB", "StoppingCondition.MaxWaitTimeInSeconds"));
}

TEST(JobRequest, NamesAllMembersThatNobodyKnows) {
  const absl::Status status =
      ParseJobRequest(R"({"TrainingJobname": "x", "InputDataConfig": [{"ChannelName": "a", "InputModes": "Pipe"}],
                          "StoppingCondition": {"MaxRuntime": 3}, "RetryStrategy": {"MaximumRetryAttempts": 3}})",
                      {})
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  for (const char* name : {"\"TrainingJobname\"", "InputDataConfig[0].InputModes", "StoppingCondition.MaxRuntime"})
    EXPECT_THAT(status.message(), HasSubstr(name));
  EXPECT_THAT(status.message(), Not(HasSubstr("RetryStrategy")));
}

TEST(JobRequest, SaysWhatIsWrong) {
  const auto with = [](const std::string& channel) {
    return R"({"InputDataConfig": [{"ChannelName": "a", )" + channel + "}]}";
  };
  const auto s3 = [&with](const std::string& source) {
    return with(R"("DataSource": {"S3DataSource": {)" + source + "}}");
  };
  const std::map<std::string, std::string> wrong{
      {"", "no JSON"},
      {"[]", "the request: is no JSON object"},
      {R"({"HyperParameters": {"lr": 0.1}})", "HyperParameters.lr"},
      {R"({"TrainingJobName": 3})", "TrainingJobName"},
      {with(R"("InputMode": "File")"), "InputDataConfig[0].DataSource: is missing"},
      {with(R"("DataSource": {})"), "S3DataSource or FileSystemDataSource"},
      {s3(R"("S3DataType": "S3Prefix")"), "S3Uri: is missing"},
      {s3(R"("S3DataType": "Prefix", "S3Uri": "s3://b/x")"), "S3Prefix"},
      {s3(R"("S3DataType": "AugmentedManifestFile", "S3Uri": "s3://b/x", "AttributeNames": ["a"])"), "needs mode=Pipe"},
      {R"({"StoppingCondition": {"MaxRuntimeInSeconds": 0}})", "MaxRuntimeInSeconds"},
      {R"({"StoppingCondition": {"MaxRuntimeInSeconds": "60"}})", "MaxRuntimeInSeconds"},
      {R"({"RetryStrategy": {"MaximumRetryAttempts": 31}})", "MaximumRetryAttempts"},
      {R"({"ResourceConfig": {"InstanceGroups": []}})", "InstanceGroups"},
      {R"({"OutputDataConfig": {}})", "S3OutputPath: is missing"},
  };
  for (const auto& [text, message] : wrong) {
    const absl::Status status = ParseJobRequest(text, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(status.message(), HasSubstr(message)) << text;
  }
  EXPECT_THAT(ParseJobRequest(kRequest, {}).status().message(), HasSubstr("--file-system fs-01234567=DIR"));
  EXPECT_TRUE(absl::IsUnimplemented(ParseJobRequest(with(R"("DataSource": {"DatasetSource": {}})"), {}).status()));
}

}  // namespace
}  // namespace millrace
