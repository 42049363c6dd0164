#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Represents a group of hosts of a job, and what they run.
struct JobGroup {
  std::string name;
  std::string command;  // of a shell
  uint64_t hosts = 1;
};

/// Returns NAME=COMMAND and NAME=HOSTS, taken apart. InvalidArgument for what is none, and for names that are no DNS
/// labels.
absl::StatusOr<std::vector<JobGroup>> TakeGroups(const std::vector<std::string>& groups,
                                                 const std::vector<std::string>& sizes);

/// Represents the input of the files that start a job of groups.
struct GroupFileOptions {
  std::string kind;  // "slurm-script" or "jobset"
  std::string name;  // of the job
  std::string image;
  uint16_t port = 7079;
  std::vector<JobGroup> groups;   // the last one is the main one
  std::vector<std::string> kept;  // the other options of the run, as words
  std::chrono::seconds grace{120};
  int requeue_exit = 75;  // the status of a host that leaves, while the others continue
};

/// Returns the file that starts the groups: a batch script of Slurm, or a JobSet of Kubernetes. InvalidArgument for
/// names that Kubernetes does not take, and without an image.
absl::StatusOr<std::string> GroupFile(const GroupFileOptions& options);

}  // namespace millrace
