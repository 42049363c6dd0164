#include "channel/training_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Every variable is compared with SageMaker's toolkit itself in tests/cli/test_channels.py.

TrainingJob SomeJob() {
  TrainingJob job;
  job.root = "/work/ml";
  job.channels = {{"train", "s3://b/p", "image/jpeg"}, {"eval-1", "/data", ""}};
  job.hyperparameters = {{"lr", "0.1"}, {"name", "a b"}, {"b", "true"}, {"sagemaker_program", "\"main.py\""}};
  job.hosts = {"algo-1", "algo-2"};
  job.current_host = "algo-2";
  job.cpus = 8;
  return job;
}

TEST(TrainingJob, ItsFilesAreWhatProgramsRead) {
  std::map<std::string, std::string> files = ConfigFiles(SomeJob());
  ASSERT_EQ(files.size(), 3u);
  const Json channels = Json::parse(files["input/config/inputdataconfig.json"]);
  EXPECT_EQ(channels["train"]["ContentType"], "image/jpeg");
  EXPECT_EQ(channels["eval-1"]["TrainingInputMode"], "File");
  EXPECT_FALSE(channels["eval-1"].contains("ContentType"));
  const Json resources = Json::parse(files["input/config/resourceconfig.json"]);
  EXPECT_EQ(resources["current_host"], "algo-2");
  EXPECT_EQ(resources["hosts"], Json({"algo-1", "algo-2"}));
  // Values are strings, whatever they look like.
  EXPECT_EQ(Json::parse(files["input/config/hyperparameters.json"])["lr"], "0.1");
}

TEST(TrainingJob, ItsVariablesAreSpelledAsTheToolkitDoes) {
  std::map<std::string, std::string> variables = JobVariables(SomeJob());
  EXPECT_EQ(variables["SM_CHANNEL_TRAIN"], "/work/ml/input/data/train");
  EXPECT_EQ(variables["SM_CHANNEL_EVAL-1"], "/work/ml/input/data/eval-1");
  EXPECT_EQ(variables["SM_CHANNELS"], R"(["eval-1","train"])");
  EXPECT_EQ(variables["SM_HP_LR"], "0.1");
  EXPECT_EQ(variables["SM_HPS"], R"({"b":true,"lr":0.1,"name":"a b"})");
  EXPECT_EQ(variables["SM_USER_ARGS"], R"(["-b","True","--lr","0.1","--name","a b"])");
  EXPECT_EQ(variables["SM_USER_ENTRY_POINT"], "main.py");
  EXPECT_EQ(variables["SM_NUM_CPUS"], "8");
  EXPECT_EQ(variables["SAGEMAKER_BASE_DIR"], "/work/ml");
  EXPECT_FALSE(Json::parse(variables["SM_TRAINING_ENV"])["is_master"]);
}

TEST(TrainingJob, WhatSageMakerRefusesIsRefused) {
  EXPECT_TRUE(CheckTrainingJob(SomeJob()).ok());
  TrainingJob job = SomeJob();
  job.current_host = "algo-3";
  EXPECT_THAT(CheckTrainingJob(job).message(), HasSubstr("algo-3 is not among"));
  job = SomeJob();
  job.channels.push_back(job.channels.front());
  EXPECT_THAT(CheckTrainingJob(job).message(), HasSubstr("two channels are called train"));
  job = SomeJob();
  for (int i = 0; i < 19; ++i) job.channels.push_back({"c" + std::to_string(i), "/d", ""});
  EXPECT_THAT(CheckTrainingJob(job).message(), HasSubstr("at most 20 channels"));
  job = SomeJob();
  job.hyperparameters["x"] = "\xff";
  EXPECT_THAT(CheckTrainingJob(job).message(), HasSubstr("hyperparameter x is not UTF-8"));
  job = SomeJob();
  for (int i = 0; i < 100; ++i) job.hyperparameters[std::to_string(i)] = "1";
  EXPECT_THAT(CheckTrainingJob(job).message(), HasSubstr("at most 100 hyperparameters"));
}

}  // namespace
}  // namespace millrace
