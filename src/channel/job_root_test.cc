#include "channel/job_root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class JobRootTest : public ::testing::Test {
 protected:
  ~JobRootTest() override { fs::remove_all(root_); }

  absl::StatusOr<JobRoot> Take(const std::string& job) {
    return JobRoot::Take(root_, job, root_ + "/checkpoints",
                         [this](const std::string& text) { said_.push_back(text); });
  }
  void Write(const std::string& name) const {
    fs::create_directories(fs::path(root_ + "/" + name).parent_path());
    std::ofstream(root_ + "/" + name) << name;
  }
  bool Has(const std::string& name) const { return fs::exists(root_ + "/" + name); }

  const std::string root_ = ::testing::TempDir() + "job-root-" + std::to_string(getpid());
  std::vector<std::string> said_;
};

TEST_F(JobRootTest, OneRunAtATime) {
  {
    const absl::StatusOr<JobRoot> first = Take("a");
    ASSERT_TRUE(first.ok()) << first.status();
    for (const char* job : {"a", "b"}) {
      const absl::Status second = Take(job).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(second));
      EXPECT_THAT(std::string(second.message()), HasSubstr("process " + std::to_string(getpid())));
      EXPECT_THAT(std::string(second.message()), HasSubstr("--root"));
    }
    Write("input/config/resourceconfig.json");
    EXPECT_TRUE(first->RecordResources().ok());
    EXPECT_FALSE(JobRoot::IsLeftBehind(root_ + "/input/config"));
  }
  EXPECT_TRUE(JobRoot::IsLeftBehind(root_ + "/input/config"));
  std::filesystem::rename(root_ + "/input/config/resourceconfig.json", root_ + "/kept");
  EXPECT_FALSE(JobRoot::IsLeftBehind(root_ + "/input/config"));
  Write("input/config/resourceconfig.json");  // the platform's
  EXPECT_FALSE(JobRoot::IsLeftBehind(root_ + "/input/config"));
  EXPECT_TRUE(Take("b").ok());
  EXPECT_FALSE(JobRoot::IsLeftBehind(root_ + "/nothing"));
}

TEST_F(JobRootTest, WhatAnotherJobLeftIsMovedAside) {
  const std::vector<std::string> kept{"input/data/train/x", "input/config/channel-train.uri",
                                      "input/config/channel-t.epochs", "code/x"};
  const std::vector<std::string> moved{"model/x", "checkpoints/a/x", "output/data/x",
                                       "input/config/resourceconfig.json"};
  ASSERT_TRUE(Take("a").ok());
  for (const auto& names : {kept, moved}) {
    for (const std::string& name : names) Write(name);
  }
  ASSERT_TRUE(Take("a").ok());
  EXPECT_THAT(said_, IsEmpty());
  for (const std::string& name : moved) EXPECT_TRUE(Has(name)) << name;
  ASSERT_TRUE(Take("b").ok());
  EXPECT_THAT(said_, SizeIs(3));
  for (const std::string& name : moved) EXPECT_FALSE(Has(name)) << name;
  for (const std::string& name : kept) EXPECT_TRUE(Has(name)) << name;
  EXPECT_TRUE(Has("model-of-earlier-job-1/x") && Has("input/config-of-earlier-job-1/resourceconfig.json"));
  // The files of the job between are moved, too.
  Write("model/y");
  ASSERT_TRUE(Take("a").ok());
  EXPECT_TRUE(Has("model-of-earlier-job-2/y") && !Has("model/y"));
}

TEST_F(JobRootTest, SoIsWhatNobodyKnows) {
  Write("model/x");
  ASSERT_TRUE(Take("a").ok());
  EXPECT_TRUE(Has("model-of-earlier-job-1/x") && !Has("model/x"));
}

}  // namespace
}  // namespace millrace
