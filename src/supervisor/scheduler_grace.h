#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace millrace {

/// Represents the time that a scheduler gives a job from SIGTERM to SIGKILL, less what the supervisor itself needs.
struct SchedulerGrace {
  std::chrono::milliseconds grace{0};
  std::string why;  // a sentence for the user, without its end
};

/// The scheduler's default; no variable has the value that a user may have set: Kubernetes, AWS Batch and
/// ECS give 30 seconds. nullopt: none of them is there. SageMaker, which gives two minutes, is none of them, whatever
/// it runs in. `variable` returns "" for one that is not set. Pure.
std::optional<SchedulerGrace> GraceOfScheduler(const std::function<std::string(const char* name)>& variable);

}  // namespace millrace
