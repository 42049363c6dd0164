#include "job/group_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GroupFileOptions FileOptions(const std::string& kind) {
  return {.kind = kind,
          .name = "job",
          .image = "me/train",
          .port = 8000,
          .groups = *TakeGroups({"data=serve it's", "train=torchrun x"}, {"train=3"}),
          .kept = {"--retries", "3"},
          .grace = std::chrono::seconds(60),
          .requeue_exit = 99};
}

TEST(TakeGroups, TakesNamesCommandsAndSizes) {
  const std::vector<JobGroup> groups = *TakeGroups({"data=a=b", "train=c"}, {"train=3"});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].command, "a=b");
  EXPECT_EQ(groups[0].hosts, 1u);
  EXPECT_EQ(groups[1].hosts, 3u);
}

TEST(TakeGroups, RefusesWhatIsNoGroup) {
  for (const char* text : {"data", "=x", "data=", "da/ta=x"}) EXPECT_FALSE(TakeGroups({text}, {}).ok()) << text;
  EXPECT_FALSE(TakeGroups({"a=x", "a=y"}, {}).ok());
  for (const char* size : {"b=1", "a=0", "a=x", "a", "a=1x", "a="})
    EXPECT_FALSE(TakeGroups({"a=x"}, {size}).ok()) << size;
}

TEST(GroupFile, SlurmHasAComponentForEachGroup) {
  const std::string text = *GroupFile(FileOptions("slurm-script"));
  EXPECT_THAT(text, HasSubstr("--job-name=job\n# group data: "));
  EXPECT_THAT(text, HasSubstr("--nodes=1 --ntasks-per-node=1\n#SBATCH hetjob\n# group train: "));
  EXPECT_THAT(text, HasSubstr("millrace run --retries 3 --group-token-file \"$token\" --group-port 8000 \\\n"
                              "  --group data='serve it'\\''s' \\\n  --group train='torchrun x' \"$@\"\n}\n"));
  EXPECT_THAT(text, HasSubstr("srun --kill-on-bad-exit=0 --het-group=0 bash -c run : --het-group=1 bash -c run\n"));
  EXPECT_THAT(text, Not(HasSubstr("{{")));
}

TEST(GroupFile, AJobSetHasAJobForEachGroup) {
  const std::string text = *GroupFile(FileOptions("jobset"));
  const nlohmann::json jobs = nlohmann::json::parse(text.substr(text.find('\n')))["spec"]["replicatedJobs"];
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[1]["template"]["spec"]["parallelism"], 3);
  const nlohmann::json& container = jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0];
  EXPECT_EQ(container["command"].dump(),
            R"(["millrace","run","--role","data","--coordinator","job-train-0-0.job:8000","--main-hosts","3",)"
            R"("--group-token-file","/etc/millrace/token/token","--retries","3","--group","data=serve it's",)"
            R"("--group","train=torchrun x"])");
  EXPECT_EQ(jobs[0]["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 60 + 15);
  const nlohmann::json& rules = jobs[0]["template"]["spec"]["podFailurePolicy"]["rules"];
  EXPECT_EQ(rules[0]["onPodConditions"][0]["type"], "DisruptionTarget");
  EXPECT_EQ(rules[1]["onExitCodes"]["values"].dump(), "[99]") << "a host that serves is replaced";
  EXPECT_FALSE(jobs[1]["template"]["spec"].contains("podFailurePolicy"));
}

TEST(GroupFile, RefusesNamesThatAreNoLabels) {
  GroupFileOptions options = FileOptions("jobset");
  options.groups[0].name = "Data";
  EXPECT_FALSE(GroupFile(options).ok());
  options.kind = "slurm-script";
  EXPECT_TRUE(GroupFile(options).ok());
  options.name = "-job";
  EXPECT_FALSE(GroupFile(options).ok());
  options = FileOptions("jobset");
  options.image.clear();
  EXPECT_FALSE(GroupFile(options).ok());
}

}  // namespace
}  // namespace millrace
