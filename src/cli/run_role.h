#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace::cli {

/// What one host of a job of several groups is.
struct GroupRole {
  std::string group;
  std::string coordinator;       // the host, of the main group, that all others talk to
  std::optional<uint16_t> port;  // of the coordinator, if it was said
  bool coordinates = false;      // this one
  uint64_t main_hosts = 1;       // hosts of the main group
};

/// Flags that say it, where nothing else does.
struct RoleFlags {
  std::string role;
  std::string coordinator;
  std::optional<uint64_t> main_hosts;
  std::optional<uint64_t> host_index;
};

using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;

/// The role of this host: by flags; by the heterogeneous job of Slurm, whose components are the groups in their order;
/// by the instance groups of SageMaker, if `resource_config`, the text of its file, has them. The last one of
/// `groups` is the main one. InvalidArgument if none of them says it, or if what they say does not fit the groups.
absl::StatusOr<GroupRole> FindRole(const RoleFlags& flags, const std::vector<std::string>& groups,
                                   const std::optional<std::string>& resource_config, const ReadVariable& variable);

}  // namespace millrace::cli
