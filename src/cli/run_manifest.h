#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/run_flags.h"

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

/// What starts the groups, by --print: a batch script of Slurm, or a JobSet of Kubernetes, with the options of `run`
/// (run_words.h).
absl::StatusOr<std::string> Manifest(const RunFlags& run);

}  // namespace millrace::cli
