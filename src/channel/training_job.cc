#include "channel/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/utf8.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kGroup = "homogeneousCluster";
constexpr std::string_view kInstanceType = "local";
constexpr std::string_view kNetworkInterface = "eth0";
// Hyperparameters that are told to the toolkit, and not to the program.
constexpr std::string_view kToolkitPrefix = "sagemaker_";

/// As Python's json.dumps writes it with separators (",", ":").
std::string Compact(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true);
}

/// What a value means: JSON if it is, else a string.
Json Meaning(const std::string& text) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

Json InputDataConfig(const TrainingJob& job) {
  Json config = Json::object();
  for (const Channel& channel : job.channels) {
    Json& entry = config[channel.name];
    entry = {{"TrainingInputMode", "File"}, {"S3DistributionType", "FullyReplicated"}, {"RecordWrapperType", "None"}};
    if (!channel.content_type.empty()) entry["ContentType"] = channel.content_type;
  }
  return config;
}

Json InstanceGroup(const TrainingJob& job) {
  return {{"hosts", job.hosts}, {"instance_group_name", kGroup}, {"instance_type", kInstanceType}};
}

Json ResourceConfig(const TrainingJob& job) {
  return {{"current_group_name", kGroup},
          {"current_host", job.current_host},
          {"current_instance_type", kInstanceType},
          {"hosts", job.hosts},
          {"instance_groups", Json::array({InstanceGroup(job)})},
          {"network_interface_name", kNetworkInterface}};
}

/// As Python prints it.
std::string PythonText(const Json& value, bool quoted) {
  std::string text;
  const auto list = [&](char open, char close, const auto& each) {
    text += open;
    bool first = true;
    for (const auto& item : value.items()) {
      if (!first) text += ", ";
      first = false;
      each(item);
    }
    return text + close;
  };
  switch (value.type()) {
    case Json::value_t::null:
      return "None";
    case Json::value_t::boolean:
      return value.get<bool>() ? "True" : "False";
    case Json::value_t::string:
      return quoted ? fmt::format("'{}'", value.get_ref<const std::string&>()) : value.get<std::string>();
    case Json::value_t::array:
      return list('[', ']', [&](const auto& item) { text += PythonText(item.value(), true); });
    case Json::value_t::object:
      return list('{', '}', [&](const auto& item) {
        text += fmt::format("'{}': {}", item.key(), PythonText(item.value(), true));
      });
    default:
      return value.dump();
  }
}

/// The toolkit's own forms for the values of a command line.
std::string ArgumentText(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_object()) return PythonText(value, false);
  std::string text;
  for (const auto& [key, item] : value.items()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, PythonText(item, false));
  }
  return text;
}

Json UserArguments(const Json& hyperparameters) {
  Json arguments = Json::array();
  for (const auto& [key, value] : hyperparameters.items()) {
    arguments.push_back((key.size() == 1 ? "-" : "--") + key);
    arguments.push_back(ArgumentText(value));
  }
  return arguments;
}

/// What the toolkit knows of a job, by its names, which become SM_NAME.
Json Environment(const TrainingJob& job) {
  Json channels = Json::object();
  for (const Channel& channel : job.channels) channels[channel.name] = job.ChannelFolder(channel);
  Json hyperparameters = Json::object();
  std::string entry_point;
  for (const auto& [key, value] : job.hyperparameters) {
    if (!key.starts_with(kToolkitPrefix)) hyperparameters[key] = Meaning(value);
    if (const Json program = Meaning(value); key == "sagemaker_program" && program.is_string()) entry_point = program;
  }
  const std::string module = entry_point.ends_with(".py") ? entry_point.substr(0, entry_point.size() - 3) : entry_point;
  return {{"additional_framework_parameters", Json::object()},
          {"channel_input_dirs", channels},
          {"current_host", job.current_host},
          {"current_instance_group", kGroup},
          {"current_instance_group_hosts", job.hosts},
          {"current_instance_type", kInstanceType},
          {"distribution_hosts", Json::array()},
          {"distribution_instance_groups", Json::array()},
          {"framework_module", nullptr},
          {"hosts", job.hosts},
          {"hyperparameters", hyperparameters},
          {"input_config_dir", job.root + "/input/config"},
          {"input_data_config", InputDataConfig(job)},
          {"input_dir", job.root + "/input"},
          {"instance_groups", Json::array({kGroup})},
          {"instance_groups_dict", {{kGroup, InstanceGroup(job)}}},
          {"is_hetero", false},
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

/// Only ASCII letters change, as in a C locale, and nothing else: SM_HP_LEARNING-RATE.
std::string VariableName(std::string_view name) {
  std::string upper = "SM_";
  for (const char c : name) upper += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return upper;
}

absl::Status CheckText(std::string_view what, std::string_view text) {
  if (FirstNotUtf8(text) == text.size() && text.find('\0') == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} is not UTF-8 text", what));
}

}  // namespace

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
  return absl::OkStatus();
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
  variables["SM_USER_ARGS"] = Compact(UserArguments(hyperparameters));
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
