#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Changes that a cached file needs before programs of this machine can use it.

namespace millrace {

/// Triton's group file of a kernel (`__grp__NAME.json`) names the other files of the kernel by absolute paths of the
/// host that compiled them. Returns the text with the paths of this machine: `place` is the place of the group file.
/// Returns nullopt if `path`, that of the CachedFile, is no group file, or if the text is not of the known form.
std::optional<std::string> LocalTritonGroup(std::string_view path, const std::string& place, std::string_view text);

/// If JAX bounds its cache (JAX_COMPILATION_CACHE_MAX_SIZE), it reads the time of use of each entry, and stores nothing
/// while one is missing. Writes that of the entry at `place`, if it is an entry of JAX without one: now. An error is
/// ignored, since the entry itself can be used.
void AddJaxTimeOfUse(std::string_view path, const std::string& place);

/// Returns true if the command or the variables show that several hosts run one job: torchrun with more than one node,
/// MPI, Slurm, SageMaker, AWS Batch. Such hosts must all start, since the host that compiles may wait for the others
/// first. `variable` returns "" if a variable is not set.
bool HostsStartTogether(const std::vector<std::string>& command,
                        const std::function<std::string(const std::string& name)>& variable);

}  // namespace millrace
