#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/job_request.h"
#include "channel/training_job.h"
#include "cli/run_mounts.h"
#include "cli/run_served.h"

namespace millrace::cli {

/// The flags by which `millrace run` describes a training job as SageMaker does.
struct JobFlags {
  std::vector<std::string> channels;
  std::vector<std::string> hyperparameters;
  bool no_arguments = false;  // hyperparameters do not become words of the command
  std::string root = "/opt/ml";
  std::optional<std::string> hosts;
  std::vector<std::string> groups;
  std::string current_host;
  std::string request;  // a file with a CreateTrainingJob request
  std::vector<std::string> file_systems;
  std::string output;
  std::string checkpoints;
  std::optional<std::string> max_runtime;
  std::string lineage;

  bool DescribeJob() const {
    return !channels.empty() || !hyperparameters.empty() || !request.empty() || !output.empty() ||
           !checkpoints.empty() || max_runtime || !lineage.empty();
  }
};

/// A job, and what a request says beside it.
struct DescribedJob {
  TrainingJob job;
  JobPlaces places;
  JobRequest request;  // without its channels, hyperparameters and groups
};

/// Flags add to a request: other channels and hyperparameters, or others in place of those of the same names; other
/// hosts.
absl::StatusOr<DescribedJob> TakeJob(const JobFlags& flags);

/// The channels of a job that are served while it runs.
struct ServedChannels {
  std::vector<PipeInput> pipes;
  std::vector<MountInput> mounts;
  bool any() const { return !pipes.empty() || !mounts.empty(); }
};

/// Makes the tree of the job and copies the data of its channels in File mode, and its checkpoints, there. Returns the
/// other channels. `say` is told what was done. Leaves no threads.
absl::StatusOr<ServedChannels> PrepareJob(const TrainingJob& job, const JobPlaces& places,
                                          const std::function<void(const std::string&)>& say);

}  // namespace millrace::cli
