#include "supervisor/scheduler_grace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace millrace {
namespace {

std::optional<SchedulerGrace> GraceWith(const std::map<std::string, std::string>& variables) {
  return GraceOfScheduler([&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? std::string() : at->second;
  });
}

TEST(GraceOfScheduler, IsLessThanWhatTheSchedulerGives) {
  for (const auto& [variable, name] : std::map<std::string, std::string>{{"KUBERNETES_SERVICE_HOST", "Kubernetes"},
                                                                         {"AWS_BATCH_JOB_ID", "AWS Batch"},
                                                                         {"ECS_CONTAINER_METADATA_URI_V4", "ECS"}}) {
    const std::optional<SchedulerGrace> grace = GraceWith({{variable, "x"}});
    ASSERT_TRUE(grace) << variable;
    EXPECT_EQ(grace->grace, std::chrono::seconds(25));
    EXPECT_THAT(grace->why, testing::StartsWith(name + " kills 30 s after SIGTERM"));
  }
  EXPECT_FALSE(GraceWith({}));
  EXPECT_FALSE(GraceWith({{"KUBERNETES_SERVICE_HOST", ""}}));
}

TEST(GraceOfScheduler, SageMakerGivesMore) {
  EXPECT_FALSE(GraceWith({{"TRAINING_JOB_ARN", "arn:x"}, {"ECS_CONTAINER_METADATA_URI_V4", "http://x"}}));
}

}  // namespace
}  // namespace millrace
