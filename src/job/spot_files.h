#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "job/run_job.h"

namespace millrace {

struct SpotFileOptions {
  std::string kind;               // "user-data", "spot-fleet" or "iam-policy"
  std::vector<std::string> ec2;   // KEY=VALUE
  std::vector<std::string> kept;  // the options of the run that the file does not say in its own way, as words
};

/// The file of `millrace run --print` that makes a run a job of EC2 spot instances: user-data is a shell script,
/// spot-fleet the configuration of RequestSpotFleet, iam-policy the rights of the instances. A usage error if the file
/// needs other options.
absl::StatusOr<std::string> SpotFile(const RunOptions& run, const SpotFileOptions& options);

}  // namespace millrace
