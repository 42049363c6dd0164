#pragma once

#include <string>

#include "base/status.h"
#include "cli/run_flags.h"

namespace millrace::cli {

/// The file of `millrace run --print` that makes this run a job of EC2 spot instances: user-data, a shell script;
/// spot-fleet, the configuration of RequestSpotFleet; iam-policy, what the role of the instances may do. A usage error
/// if flags are lacking that the file needs.
absl::StatusOr<std::string> PrintRunFile(const RunFlags& flags);

}  // namespace millrace::cli
