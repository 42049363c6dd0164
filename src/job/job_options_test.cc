#include "job/job_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/run_job.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const JobOptions& options) {
  return std::string(TakeJob(options).status().message());
}

TEST(TakeJob, HostsAreSortedAndEachStandsOnce) {
  const DescribedJob described = *TakeJob({.root = "/r/", .hosts = "b,,a,b", .current_host = "b"});
  EXPECT_THAT(described.job.hosts, ElementsAre("a", "b"));
  EXPECT_EQ(described.job.current_host, "b");
  EXPECT_EQ(described.job.root, "/r");
  EXPECT_EQ(described.places.checkpoint_folder, "/r/checkpoints");
  EXPECT_FALSE(described.places.any());
}

TEST(TakeJob, GroupsNameHosts) {
  const DescribedJob described = *TakeJob({.groups = {"g=b+a", "h=c"}, .current_host = "c"});
  EXPECT_THAT(described.job.hosts, ElementsAre("a", "b", "c"));
  EXPECT_THAT(described.job.groups.front().hosts, ElementsAre("a", "b"));
}

TEST(TakeJob, ErrorsNameTheOption) {
  EXPECT_THAT(ErrorOf({.hosts = ","}), HasSubstr("--hosts"));
  EXPECT_THAT(ErrorOf({.hosts = "a,b"}), HasSubstr("--current-host"));
  EXPECT_THAT(ErrorOf({.groups = {"g"}}), HasSubstr("--instance-group"));
  EXPECT_THAT(ErrorOf({.hyperparameters = {"a=1", "a=2"}}), HasSubstr("--hyperparameter"));
  EXPECT_THAT(ErrorOf({.request = "/nowhere"}), HasSubstr("--job"));
  EXPECT_THAT(ErrorOf({.request = "/nowhere", .file_systems = {"id"}}), HasSubstr("--file-system"));
  EXPECT_FALSE(TakeJob({.output = "s3:/x"}).ok());
}

TEST(JobOptions, ChannelsAndLimitsDescribeAJob) {
  EXPECT_FALSE(JobOptions().DescribeJob());
  EXPECT_FALSE((JobOptions{.hosts = "a"}).DescribeJob());
  EXPECT_TRUE((JobOptions{.max_seconds = 5}).DescribeJob());
  EXPECT_TRUE((JobOptions{.channels = {"a=/x"}}).DescribeJob());
}

TEST(JobIdentity, DependsOnTheCommandOnlyWithoutAPlaceOfCheckpoints) {
  RunOptions run;
  run.supervisor.command = {"python", "train.py"};
  TrainingJob job;
  JobPlaces places;
  const std::string first = JobIdentity(run, job, places);
  run.supervisor.restart.retries = 7;
  EXPECT_EQ(JobIdentity(run, job, places), first) << "limits do not count";
  run.supervisor.command = {"python train.py"};
  EXPECT_NE(JobIdentity(run, job, places), first);
  places.checkpoints = "s3://b/c";
  const std::string kept = JobIdentity(run, job, places);
  run.supervisor.command = {"python", "train.py"};
  EXPECT_EQ(JobIdentity(run, job, places), kept);
  run.supervisor.checkpoint = "s3://b/run";
  EXPECT_NE(JobIdentity(run, job, places), kept);
}

}  // namespace
}  // namespace millrace
