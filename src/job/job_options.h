#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "channel/job_request.h"
#include "channel/training_job.h"

namespace millrace {

/// Represents the description of a training job, in SageMaker's terms, as texts of the options of `millrace run`.
struct JobOptions {
  std::vector<std::string> channels;
  std::vector<std::string> hyperparameters;
  std::vector<std::string> hyperparameter_files;  // each has the value of one, which is not shown
  std::string hyperparameters_file;               // a JSON object
  bool no_arguments = false;                      // hyperparameters do not become words of the command
  std::string root = "/opt/ml";
  std::optional<std::string> hosts;
  std::vector<std::string> groups;
  std::string current_host;
  std::string request;  // a file with a CreateTrainingJob request
  std::vector<std::string> file_systems;
  std::string output;
  std::string checkpoints;
  std::optional<uint64_t> max_seconds;
  std::string lineage;

  bool DescribeJob() const {
    return !channels.empty() || !hyperparameters.empty() || !hyperparameter_files.empty() ||
           !hyperparameters_file.empty() || !request.empty() || !output.empty() || !checkpoints.empty() ||
           max_seconds || !lineage.empty();
  }
};

/// Represents the limits of a job, and where its results go.
struct JobPlaces {
  std::optional<uint64_t> max_seconds;  // that it may run, all attempts together
  std::string output;                   // URI of a folder for its model and output at the end; "": none
  bool archives = true;                 // as model.tar.gz and output.tar.gz; false: file by file
  std::string checkpoints;              // URI of a folder that is kept like that of its checkpoints; "": none
  std::string checkpoint_folder;

  bool any() const { return max_seconds || !output.empty() || !checkpoints.empty(); }
};

/// Represents a job, and what a request says beside it.
struct DescribedJob {
  TrainingJob job;
  std::set<std::string> secrets;  // names of hyperparameters whose values are not shown
  JobPlaces places;
  JobRequest request;  // without its channels, hyperparameters and groups
};

/// Options add to a request: other channels and hyperparameters, or others in place of those of the same names; other
/// hosts. A hyperparameter of an option of its own comes before that of the file of hyperparameters. Blocking.
/// InvalidArgument names the option that is wrong.
absl::StatusOr<DescribedJob> TakeJob(const JobOptions& options);

}  // namespace millrace
