#include "supervisor/scheduler_grace.h"

#include <fmt/format.h>

#include <array>

namespace millrace {

namespace {

struct Scheduler {
  const char* variable;  // that it sets in each container
  const char* name;
  const char* setting;  // that gives more time
};

// A task of AWS Batch is one of ECS, too.
constexpr std::array<Scheduler, 3> kSchedulers = {{
    {"KUBERNETES_SERVICE_HOST", "Kubernetes", "terminationGracePeriodSeconds"},
    {"AWS_BATCH_JOB_ID", "AWS Batch", "ECS_CONTAINER_STOP_TIMEOUT"},
    {"ECS_CONTAINER_METADATA_URI_V4", "ECS", "stopTimeout"},
}};
constexpr std::chrono::seconds kGiven{30};
constexpr std::chrono::seconds kPromised{25};

}  // namespace

std::optional<SchedulerGrace> GraceOfScheduler(const std::function<std::string(const char* name)>& variable) {
  if (!variable("TRAINING_JOB_ARN").empty()) return std::nullopt;  // SageMaker
  for (const Scheduler& scheduler : kSchedulers) {
    if (variable(scheduler.variable).empty()) continue;
    return SchedulerGrace{
        .grace = kPromised,
        .why = fmt::format("{} kills {} s after SIGTERM unless {} says otherwise, so that the command "
                           "has {} s to end; say --grace if it has more",
                           scheduler.name, kGiven.count(), scheduler.setting, kPromised.count())};
  }
  return std::nullopt;
}

}  // namespace millrace
