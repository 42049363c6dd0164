#include "channel/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "base/utf8.h"
#include "channel/python_json.h"
#include "channel/user_arguments.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kGroup = "homogeneousCluster";
constexpr std::string_view kInstanceType = "local";
constexpr std::string_view kNetworkInterface = "eth0";

std::string Compact(const Json& value) {
  return DumpPythonJson(PythonJson(value));
}

/// Returns the value of a text: JSON if it parses as JSON, else a string.
Json Meaning(const std::string& text) {
  std::optional<PythonJson> value = ParsePythonJson(text);
  return value ? Json(*std::move(value)) : Json(text);
}

Json InputDataConfig(const TrainingJob& job) {
  Json config = Json::object();
  for (const Channel& channel : job.channels) {
    Json& entry = config[channel.name];
    entry = {{"TrainingInputMode", ChannelModeName(channel.mode)},
             {"S3DistributionType", channel.sharded ? "ShardedByS3Key" : "FullyReplicated"},
             {"RecordWrapperType", channel.recordio ? "RecordIO" : "None"}};
    if (!channel.content_type.empty()) entry["ContentType"] = channel.content_type;
  }
  return config;
}

Json GroupJson(const InstanceGroup& group) {
  return {{"hosts", group.hosts}, {"instance_group_name", group.name}, {"instance_type", group.type}};
}

InstanceGroup CurrentGroup(const TrainingJob& job) {
  for (InstanceGroup& group : job.AllGroups()) {
    if (std::ranges::binary_search(group.hosts, job.current_host)) return std::move(group);
  }
  return {};
}

Json ResourceConfig(const TrainingJob& job) {
  const InstanceGroup current = CurrentGroup(job);
  Json groups = Json::array();
  for (const InstanceGroup& group : job.AllGroups()) groups.push_back(GroupJson(group));
  return {{"current_group_name", current.name},
          {"current_host", job.current_host},
          {"current_instance_type", current.type},
          {"hosts", job.hosts},
          {"instance_groups", groups},
          {"network_interface_name", kNetworkInterface}};
}

/// Returns the settings of a job that the toolkit knows, by its names, which become SM_NAME.
Json Environment(const TrainingJob& job) {
  Json channels = Json::object();
  for (const Channel& channel : job.channels) channels[channel.name] = job.ChannelFolder(channel);
  Json hyperparameters = Json::object();
  for (const auto& [key, value] : job.hyperparameters) {
    if (!IsForToolkit(key)) hyperparameters[key] = Meaning(value);
  }
  const std::string entry_point = job.EntryPoint();
  const InstanceGroup current = CurrentGroup(job);
  Json groups = Json::array();
  Json groups_by_name = Json::object();
  for (const InstanceGroup& group : job.AllGroups()) {
    groups.push_back(group.name);
    groups_by_name[group.name] = GroupJson(group);
  }
  const std::string module = entry_point.ends_with(".py") ? entry_point.substr(0, entry_point.size() - 3) : entry_point;
  return {{"additional_framework_parameters", Json::object()},
          {"channel_input_dirs", channels},
          {"current_host", job.current_host},
          {"current_instance_group", current.name},
          {"current_instance_group_hosts", current.hosts},
          {"current_instance_type", current.type},
          {"distribution_hosts", Json::array()},
          {"distribution_instance_groups", Json::array()},
          {"framework_module", nullptr},
          {"hosts", job.hosts},
          {"hyperparameters", hyperparameters},
          {"input_config_dir", job.root + "/input/config"},
          {"input_data_config", InputDataConfig(job)},
          {"input_dir", job.root + "/input"},
          {"instance_groups", groups},
          {"instance_groups_dict", groups_by_name},
          {"is_hetero", groups.size() > 1},
          {"is_master", job.current_host == job.hosts.front()},
          {"job_name", nullptr},
          {"log_level", 20},
          {"master_hostname", job.hosts.front()},
          {"model_dir", job.root + "/model"},
          {"module_dir", job.root + "/code"},
          {"module_name", module.empty() ? Json() : Json(module)},
          {"network_interface_name", kNetworkInterface},
          {"num_cpus", job.cpus},
          {"num_gpus", job.gpus},
          {"num_neurons", 0},
          {"output_data_dir", job.root + "/output/data"},
          {"output_dir", job.root + "/output"},
          {"output_intermediate_dir", job.root + "/output/intermediate"},
          {"resource_config", ResourceConfig(job)},
          {"topology", Json::array()},
          {"user_entry_point", entry_point.empty() ? Json() : Json(entry_point)}};
}

std::string VariableText(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : Compact(value);
}

/// Only letters change: SM_HP_LEARNING-RATE.
std::string VariableName(std::string_view name) {
  return "SM_" + PythonUpper(name);
}

/// Returns InvalidArgument if a pipe of one channel has the name of another channel.
absl::Status CheckPipeNames(const TrainingJob& job) {
  for (const Channel& pipe : job.channels) {
    if (pipe.mode != ChannelMode::kPipe) continue;
    for (const Channel& other : job.channels) {
      const std::string_view name = other.name;
      if (!name.starts_with(pipe.name + "_")) continue;
      if (name.find_first_not_of("0123456789", pipe.name.size() + 1) != std::string_view::npos) continue;
      if (name.size() == pipe.name.size() + 1) continue;
      return absl::InvalidArgumentError(
          fmt::format("channel {} has the name of a pipe of channel {}; rename one", name, pipe.name));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const TrainingJob& job) {
  std::vector<std::string> grouped;
  std::set<std::string> names;
  for (const InstanceGroup& group : job.AllGroups()) {
    if (group.name.empty() || !names.insert(group.name).second)
      return absl::InvalidArgumentError(
          fmt::format("two instance groups are called '{}', or one has no name", group.name));
    grouped.insert(grouped.end(), group.hosts.begin(), group.hosts.end());
  }
  std::ranges::sort(grouped);
  if (grouped != job.hosts) return absl::InvalidArgumentError("each host must be in one instance group");
  if (job.groups.size() > Channel::kMaxGroups)
    return absl::InvalidArgumentError(fmt::format("a job has at most {} instance groups", Channel::kMaxGroups));
  for (const Channel& channel : job.channels) {
    for (const std::string& group : channel.groups) {
      if (names.contains(group)) continue;
      return absl::InvalidArgumentError(
          fmt::format("channel {}: there is no instance group '{}'", channel.name, group));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckText(std::string_view what, std::string_view text) {
  if (FirstNotUtf8(text) == text.size() && text.find('\0') == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} is not UTF-8 text", what));
}

}  // namespace

std::vector<InstanceGroup> TrainingJob::AllGroups() const {
  if (!groups.empty()) return groups;
  return {{.name = std::string(kGroup), .type = std::string(kInstanceType), .hosts = hosts}};
}

std::vector<std::string> TrainingJob::HostsOf(const Channel& channel) const {
  if (channel.groups.empty()) return hosts;
  std::vector<std::string> some;
  for (const InstanceGroup& group : AllGroups()) {
    if (std::ranges::find(channel.groups, group.name) != channel.groups.end())
      some.insert(some.end(), group.hosts.begin(), group.hosts.end());
  }
  std::ranges::sort(some);
  return some;
}

uint64_t TrainingJob::RankIn(const Channel& channel) const {
  const std::vector<std::string> some = HostsOf(channel);
  return static_cast<uint64_t>(std::ranges::find(some, current_host) - some.begin());
}

std::string TrainingJob::EntryPoint() const {
  const auto named = hyperparameters.find("sagemaker_program");
  const Json program = named == hyperparameters.end() ? Json() : Meaning(named->second);
  return program.is_string() ? program.get<std::string>() : "";
}

absl::StatusOr<std::map<std::string, std::string>> ParseHyperparameters(std::string_view json) {
  const std::optional<PythonJson> object = ParsePythonJson(json);
  if (!object || !object->is_object())
    return absl::InvalidArgumentError("it is not a JSON object, {\"NAME\": VALUE, ...}");
  std::map<std::string, std::string> hyperparameters;
  for (const auto& [name, value] : object->items())
    hyperparameters[name] = value.is_string() ? value.get<std::string>() : DumpPythonJson(value);
  return hyperparameters;
}

absl::Status CheckTrainingJob(const TrainingJob& job) {
  if (job.channels.size() > kMaxChannels) {
    return absl::InvalidArgumentError(
        fmt::format("a job has at most {} channels, not {}", kMaxChannels, job.channels.size()));
  }
  std::set<std::string_view> names;
  for (const Channel& channel : job.channels) {
    RETURN_IF_ERROR(CheckText(fmt::format("the content type of channel {}", channel.name), channel.content_type));
    if (!names.insert(channel.name).second) {
      return absl::InvalidArgumentError(fmt::format("two channels are called {}", channel.name));
    }
  }
  RETURN_IF_ERROR(CheckPipeNames(job));
  if (job.hyperparameters.size() > kMaxHyperparameters) {
    return absl::InvalidArgumentError(
        fmt::format("a job has at most {} hyperparameters, not {}", kMaxHyperparameters, job.hyperparameters.size()));
  }
  for (const auto& [key, value] : job.hyperparameters) {
    RETURN_IF_ERROR(CheckText("the name of a hyperparameter", key));
    RETURN_IF_ERROR(CheckText(fmt::format("the value of hyperparameter {}", key), value));
    if (key.empty()) return absl::InvalidArgumentError("the name of a hyperparameter is empty");
  }
  RETURN_IF_ERROR(CheckText("the root of the job", job.root));
  for (const std::string& host : job.hosts) RETURN_IF_ERROR(CheckText("the name of a host", host));
  if (!std::ranges::binary_search(job.hosts, job.current_host)) {
    return absl::InvalidArgumentError(fmt::format("the current host {} is not among the hosts", job.current_host));
  }
  return CheckGroups(job);
}

std::map<std::string, std::string> ConfigFiles(const TrainingJob& job) {
  return {{"input/config/inputdataconfig.json", InputDataConfig(job).dump(2) + "\n"},
          {"input/config/resourceconfig.json", ResourceConfig(job).dump(2) + "\n"},
          {"input/config/hyperparameters.json", Json(job.hyperparameters).dump(2) + "\n"}};
}

std::map<std::string, std::string> JobVariables(const TrainingJob& job) {
  const Json environment = Environment(job);
  std::map<std::string, std::string> variables{{"SAGEMAKER_BASE_DIR", job.root},
                                               {"SM_TRAINING_ENV", Compact(environment)}};
  for (const char* name : {"current_host",
                           "current_instance_group",
                           "current_instance_group_hosts",
                           "current_instance_type",
                           "distribution_instance_groups",
                           "framework_module",
                           "hosts",
                           "input_config_dir",
                           "input_data_config",
                           "input_dir",
                           "instance_groups",
                           "instance_groups_dict",
                           "is_hetero",
                           "log_level",
                           "model_dir",
                           "module_dir",
                           "module_name",
                           "network_interface_name",
                           "num_cpus",
                           "num_gpus",
                           "num_neurons",
                           "output_data_dir",
                           "output_dir",
                           "output_intermediate_dir",
                           "resource_config",
                           "user_entry_point"}) {
    variables[VariableName(name)] = VariableText(environment[name]);
  }
  const Json& hyperparameters = environment["hyperparameters"];
  variables["SM_HPS"] = Compact(hyperparameters);
  variables["SM_FRAMEWORK_PARAMS"] = Compact(environment["additional_framework_parameters"]);
  variables["SM_USER_ARGS"] = Compact(UserArguments(job));
  for (const auto& [key, value] : hyperparameters.items()) variables[VariableName("hp_" + key)] = VariableText(value);
  Json names = Json::array();
  for (const auto& [name, folder] : environment["channel_input_dirs"].items()) {
    names.push_back(name);
    variables[VariableName("channel_" + name)] = VariableText(folder);
  }
  variables["SM_CHANNELS"] = Compact(names);
  return variables;
}

}  // namespace millrace
