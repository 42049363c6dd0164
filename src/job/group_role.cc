#include "job/group_role.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "service/host_list.h"
#include "service/worker_calls.h"
#include "service/worker_places.h"

namespace millrace {

namespace {

std::optional<uint64_t> NumberOf(const std::optional<std::string>& text) {
  uint64_t number = 0;
  if (!text || text->empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

absl::StatusOr<HttpEndpoint> CoordinatorAt(const RoleFlags& flags) {
  absl::StatusOr<HttpEndpoint> address = ParseWorkerAddress(flags.coordinator);
  if (!address.ok()) return absl::InvalidArgumentError("--coordinator is HOST:PORT, for example train-0:7079");
  return address;
}

absl::StatusOr<GroupRole> RoleOfFlags(const RoleFlags& flags, const std::vector<std::string>& groups,
                                      const ReadVariable& variable) {
  if (std::find(groups.begin(), groups.end(), flags.role) == groups.end()) {
    return absl::InvalidArgumentError(
        fmt::format("--role {}: there is no such group; the groups are {}", flags.role, fmt::join(groups, ", ")));
  }
  if (flags.coordinator.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("with --role, say where the first host of group {} is: --coordinator HOST:PORT", groups.back()));
  }
  ASSIGN_OR_RETURN(const HttpEndpoint address, CoordinatorAt(flags));
  GroupRole role{.group = flags.role, .coordinator = address.host, .port = address.port};
  role.main_hosts = flags.main_hosts.value_or(1);
  if (role.group != groups.back()) return role;
  std::optional<uint64_t> index = flags.host_index;
  if (!index) index = NumberOf(variable("JOB_COMPLETION_INDEX"));  // of indexed jobs of Kubernetes
  if (!index && role.main_hosts > 1) {
    return absl::InvalidArgumentError(fmt::format(
        "group {} has {} hosts; say which of them this is, from 0 on: --host-index", role.group, role.main_hosts));
  }
  role.coordinates = index.value_or(0) == 0;
  return role;
}

// `hosts` are those of each group; the first host of the main group coordinates.
absl::StatusOr<GroupRole> RoleIn(const std::vector<std::string>& groups,
                                 const std::vector<std::vector<std::string>>& hosts, const std::string& own,
                                 std::string_view whose) {
  GroupRole role;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (std::find(hosts[group].begin(), hosts[group].end(), own) != hosts[group].end()) role.group = groups[group];
  }
  if (role.group.empty() || hosts.back().empty()) {
    return absl::InvalidArgumentError(fmt::format("{} says that this is host '{}', which is in none of the groups {}",
                                                  whose, own, fmt::join(groups, ", ")));
  }
  role.coordinator = hosts.back().front();
  role.coordinates = role.coordinator == own;
  role.main_hosts = hosts.back().size();
  return role;
}

absl::StatusOr<GroupRole> RoleOfSageMaker(const std::vector<std::string>& groups, const std::string& text) {
  std::vector<std::vector<std::string>> hosts;
  for (const std::string& group : groups) {
    ASSIGN_OR_RETURN(hosts.emplace_back(), HostsOfGroup(text, group));
  }
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  const auto own = config.find("current_host");
  return RoleIn(groups, hosts, own != config.end() && own->is_string() ? own->get<std::string>() : "",
                "resourceconfig.json");
}

absl::StatusOr<GroupRole> RoleOfSlurm(const std::vector<std::string>& groups, uint64_t components,
                                      const ReadVariable& variable) {
  if (components != groups.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "the heterogeneous job of Slurm has {} components, and --group stands {} times; their order is the same",
        components, groups.size()));
  }
  std::vector<std::vector<std::string>> hosts;
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::string list = variable(fmt::format("SLURM_JOB_NODELIST_HET_GROUP_{}", group)).value_or("");
    ASSIGN_OR_RETURN(hosts.emplace_back(), ExpandHostList(list));
  }
  return RoleIn(groups, hosts, variable("SLURMD_NODENAME").value_or(""), "Slurm");
}

}  // namespace

absl::StatusOr<GroupRole> FindRole(const RoleFlags& flags, const std::vector<std::string>& groups,
                                   const std::optional<std::string>& resource_config, const ReadVariable& variable) {
  if (!flags.role.empty()) return RoleOfFlags(flags, groups, variable);
  absl::StatusOr<GroupRole> role = absl::InvalidArgumentError(
      "nothing says which group this host belongs to (SageMaker's resourceconfig.json with instance groups, or a "
      "heterogeneous job of Slurm); say it with --role and --coordinator");
  // The variables are of this job; the file may be of an earlier one.
  if (const std::optional<uint64_t> components = NumberOf(variable("SLURM_HET_SIZE"))) {
    role = RoleOfSlurm(groups, *components, variable);
  } else if (resource_config && resource_config->find("\"instance_groups\"") != std::string::npos) {
    role = RoleOfSageMaker(groups, *resource_config);
  }
  if (!role.ok() || flags.coordinator.empty()) return role;
  ASSIGN_OR_RETURN(const HttpEndpoint address, CoordinatorAt(flags));
  role->coordinator = address.host;
  role->port = address.port;
  return role;
}

}  // namespace millrace
