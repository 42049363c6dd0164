#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Represents the part of one host in a job of several groups.
struct GroupRole {
  std::string group;
  std::string coordinator;       // the host, of the main group, that all others talk to
  std::optional<uint16_t> port;  // of the coordinator, if it was said
  bool coordinates = false;      // this one
  uint64_t main_hosts = 1;       // hosts of the main group
};

/// Represents flags that say it, where nothing else does.
struct RoleFlags {
  std::string role;
  std::string coordinator;
  std::optional<uint64_t> main_hosts;
  std::optional<uint64_t> host_index;
};

using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;

/// Finds the role of this host. Flags say it. Else the heterogeneous job of Slurm says it, whose components are the
/// groups in their order. Else the instance groups of SageMaker say it, if `resource_config`, the text of its file, has
/// them. The last one of `groups` is the main one. InvalidArgument if none of them says it, or if it does not fit the
/// groups.
absl::StatusOr<GroupRole> FindRole(const RoleFlags& flags, const std::vector<std::string>& groups,
                                   const std::optional<std::string>& resource_config, const ReadVariable& variable);

}  // namespace millrace
