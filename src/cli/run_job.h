#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/training_job.h"

namespace millrace::cli {

/// The flags by which `millrace run` describes a training job as SageMaker does.
struct JobFlags {
  std::vector<std::string> channels;
  std::vector<std::string> hyperparameters;
  std::string root = "/opt/ml";
  std::string hosts = "algo-1";
  std::string current_host;

  bool DescribeJob() const { return !channels.empty() || !hyperparameters.empty(); }
};

absl::StatusOr<TrainingJob> TakeJob(const JobFlags& flags);

/// Makes the tree of the job and copies the data of its channels there. `say` is told what was done. Leaves no threads.
absl::Status PrepareJob(const TrainingJob& job, const std::function<void(const std::string&)>& say);

}  // namespace millrace::cli
