#pragma once

#include <functional>
#include <string>
#include <vector>

namespace millrace {

/// Returns true if the command or the variables show that several hosts or processes run one job. Signs are a launcher
/// with more than one node, MPI, Slurm, SageMaker, AWS Batch, an indexed Job of Kubernetes, and a group of `millrace
/// run`. Such hosts must all start, since the host that compiles may wait for the others first. A word of the command
/// may be a line for a shell. `variable` returns "" if a variable is not set. Reads the configuration of accelerate, if
/// the command has that launcher.
bool HostsStartTogether(const std::vector<std::string>& command,
                        const std::function<std::string(const std::string& name)>& variable);

}  // namespace millrace
