#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/run_group.h"

namespace millrace::cli {

/// A group of hosts of a job, and what they run.
struct JobGroup {
  std::string name;
  std::string command;  // of a shell
  uint64_t hosts = 1;
};

/// NAME=COMMAND and NAME=HOSTS, taken apart. InvalidArgument for what is none, and for names that are no DNS labels.
absl::StatusOr<std::vector<JobGroup>> TakeGroups(const std::vector<std::string>& groups,
                                                 const std::vector<std::string>& sizes);

/// What starts the groups: a batch script of Slurm, or a JobSet of Kubernetes.
absl::StatusOr<std::string> Manifest(const GroupFlags& flags, bool for_kubernetes);

}  // namespace millrace::cli
