#include "channel/job_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "shard/json_brief.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

/// Describes a member of a request, and what it means here.
struct Member {
  const char* name;
  bool has_effect;
};
constexpr bool kUsed = true;
constexpr bool kIgnored = false;

constexpr Member kJobMembers[] = {{"TrainingJobName", kUsed},
                                  {"HyperParameters", kUsed},
                                  {"AlgorithmSpecification", kUsed},
                                  {"InputDataConfig", kUsed},
                                  {"OutputDataConfig", kUsed},
                                  {"ResourceConfig", kUsed},
                                  {"StoppingCondition", kUsed},
                                  {"CheckpointConfig", kUsed},
                                  {"Environment", kUsed},
                                  {"RetryStrategy", kUsed},
                                  {"RoleArn", kIgnored},
                                  {"VpcConfig", kIgnored},
                                  {"Tags", kIgnored},
                                  {"EnableNetworkIsolation", kIgnored},
                                  {"EnableInterContainerTrafficEncryption", kIgnored},
                                  {"EnableManagedSpotTraining", kIgnored},
                                  {"DebugHookConfig", kIgnored},
                                  {"DebugRuleConfigurations", kIgnored},
                                  {"TensorBoardOutputConfig", kIgnored},
                                  {"ExperimentConfig", kIgnored},
                                  {"ProfilerConfig", kIgnored},
                                  {"ProfilerRuleConfigurations", kIgnored},
                                  {"RemoteDebugConfig", kIgnored},
                                  {"InfraCheckConfig", kIgnored},
                                  {"SessionChainingConfig", kIgnored},
                                  {"ServerlessJobConfig", kIgnored},
                                  {"MlflowConfig", kIgnored},
                                  {"ModelPackageConfig", kIgnored}};
constexpr Member kAlgorithmMembers[] = {{"TrainingInputMode", kUsed},
                                        {"TrainingImage", kIgnored},
                                        {"AlgorithmName", kIgnored},
                                        {"MetricDefinitions", kIgnored},
                                        {"EnableSageMakerMetricsTimeSeries", kIgnored},
                                        {"ContainerEntrypoint", kIgnored},
                                        {"ContainerArguments", kIgnored},
                                        {"TrainingImageConfig", kIgnored}};
constexpr Member kChannelMembers[] = {{"ChannelName", kUsed},     {"DataSource", kUsed},        {"ContentType", kUsed},
                                      {"CompressionType", kUsed}, {"RecordWrapperType", kUsed}, {"InputMode", kUsed},
                                      {"ShuffleConfig", kUsed}};
constexpr Member kShuffleMembers[] = {{"Seed", kUsed}};
constexpr Member kSourceMembers[] = {
    {"S3DataSource", kUsed}, {"FileSystemDataSource", kUsed}, {"DatasetSource", kUsed}};
constexpr Member kS3Members[] = {{"S3DataType", kUsed},
                                 {"S3Uri", kUsed},
                                 {"S3DataDistributionType", kUsed},
                                 {"AttributeNames", kUsed},
                                 {"InstanceGroupNames", kUsed},
                                 {"ModelAccessConfig", kIgnored},
                                 {"HubAccessConfig", kIgnored}};
constexpr Member kFileSystemMembers[] = {{"FileSystemId", kUsed},
                                         {"FileSystemAccessMode", kIgnored},
                                         {"FileSystemType", kIgnored},
                                         {"DirectoryPath", kUsed}};
constexpr Member kOutputMembers[] = {{"S3OutputPath", kUsed}, {"CompressionType", kUsed}, {"KmsKeyId", kIgnored}};
constexpr Member kResourceMembers[] = {{"InstanceType", kUsed},
                                       {"InstanceCount", kUsed},
                                       {"InstanceGroups", kUsed},
                                       {"VolumeSizeInGB", kIgnored},
                                       {"VolumeKmsKeyId", kIgnored},
                                       {"KeepAlivePeriodInSeconds", kIgnored},
                                       {"TrainingPlanArn", kIgnored},
                                       {"InstancePlacementConfig", kIgnored},
                                       {"InstancePreferences", kIgnored},
                                       {"SelectedInstanceType", kIgnored},
                                       {"SelectedInstanceCount", kIgnored}};
constexpr Member kGroupMembers[] = {{"InstanceType", kUsed}, {"InstanceCount", kUsed}, {"InstanceGroupName", kUsed}};
constexpr Member kStopMembers[] = {
    {"MaxRuntimeInSeconds", kUsed}, {"MaxWaitTimeInSeconds", kIgnored}, {"MaxPendingTimeInSeconds", kIgnored}};
constexpr Member kCheckpointMembers[] = {{"S3Uri", kUsed}, {"LocalPath", kUsed}};
constexpr Member kRetryMembers[] = {{"MaximumRetryAttempts", kUsed}};

constexpr uint64_t kMaxSeconds = 28 * 24 * 3600;
constexpr uint64_t kMaxRetries = 30;
constexpr uint64_t kMaxInstances = 1000;

absl::Status Wrong(std::string_view path, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", path, what));
}

class RequestReader {
 public:
  explicit RequestReader(const std::map<std::string, std::string>& file_systems) : file_systems_(file_systems) {}

  absl::StatusOr<JobRequest> Read(const Json& json) {
    const absl::Status read = ReadJob(json);
    // All unknown members are reported at once, before other errors.
    if (!unknown_.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("SageMaker has no such members in a CreateTrainingJob request: {}", fmt::join(unknown_, ", ")));
    }
    RETURN_IF_ERROR(read);
    return std::move(request_);
  }

 private:
  absl::Status ReadJob(const Json& json) {
    RETURN_IF_ERROR(CheckMembers(json, "", kJobMembers));
    ASSIGN_OR_RETURN(request_.name, Text(json, "", "TrainingJobName", ""));
    RETURN_IF_ERROR(ReadTexts(json, "HyperParameters", request_.hyperparameters));
    RETURN_IF_ERROR(ReadTexts(json, "Environment", request_.environment));
    // Every part is looked at, so that all unknown members are found.
    absl::Status status = ReadAlgorithm(json);
    status.Update(ReadChannels(json));
    status.Update(ReadOutput(json));
    status.Update(ReadResources(json));
    status.Update(ReadLimits(json));
    return status;
  }

  template <size_t N>
  absl::Status CheckMembers(const Json& json, const std::string& path, const Member (&known)[N]) {
    if (!json.is_object()) return Wrong(path.empty() ? "the request" : path, "is no JSON object");
    for (const auto& [name, value] : json.items()) {
      const std::string full = path.empty() ? name : path + "." + name;
      const std::string& member = name;
      const auto found = std::find_if(std::begin(known), std::end(known),
                                      [&member](const Member& each) { return member == each.name; });
      if (found == std::end(known)) {
        unknown_.push_back(BriefName(full));
      } else if (!found->has_effect) {
        request_.no_effect.push_back(full);
      }
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<std::string> Text(const Json& json, const std::string& path, const char* name,
                                          std::optional<std::string> otherwise) {
    const auto found = json.find(name);
    const std::string full = path.empty() ? name : path + "." + name;
    if (found == json.end()) {
      if (otherwise) return *otherwise;
      return Wrong(full, "is missing");
    }
    if (!found->is_string()) return Wrong(full, fmt::format("is no text but {}", BriefJson(*found)));
    return found->get<std::string>();
  }

  static absl::StatusOr<std::optional<uint64_t>> Number(const Json& json, const std::string& path, const char* name,
                                                        uint64_t least, uint64_t most) {
    const auto found = json.find(name);
    if (found == json.end()) return std::nullopt;
    if (!found->is_number_unsigned() || found->get<uint64_t>() < least || found->get<uint64_t>() > most)
      return Wrong(path + "." + name,
                   fmt::format("is no whole number from {} to {} but {}", least, most, BriefJson(*found)));
    return found->get<uint64_t>();
  }

  static absl::Status ReadTexts(const Json& json, const char* name, std::map<std::string, std::string>& into) {
    const auto found = json.find(name);
    if (found == json.end()) return absl::OkStatus();
    if (!found->is_object()) return Wrong(name, "is no JSON object");
    for (const auto& [key, value] : found->items()) {
      if (!value.is_string()) return Wrong(fmt::format("{}.{}", name, key), "is no text; SageMaker takes texts only");
      into[key] = value.get<std::string>();
    }
    return absl::OkStatus();
  }

  absl::Status ReadAlgorithm(const Json& json) {
    const auto found = json.find("AlgorithmSpecification");
    if (found == json.end()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckMembers(*found, "AlgorithmSpecification", kAlgorithmMembers));
    ASSIGN_OR_RETURN(mode_, Text(*found, "AlgorithmSpecification", "TrainingInputMode", "File"));
    return absl::OkStatus();
  }

  absl::Status ReadChannels(const Json& json) {
    const auto found = json.find("InputDataConfig");
    if (found == json.end()) return absl::OkStatus();
    if (!found->is_array()) return Wrong("InputDataConfig", "is no JSON array");
    absl::Status status;
    for (size_t i = 0; i < found->size(); ++i)
      status.Update(ReadChannel((*found)[i], fmt::format("InputDataConfig[{}]", i)));
    return status;
  }

  absl::Status ReadChannel(const Json& json, const std::string& path) {
    RETURN_IF_ERROR(CheckMembers(json, path, kChannelMembers));
    Channel channel;
    ASSIGN_OR_RETURN(channel.name, Text(json, path, "ChannelName", std::nullopt));
    ASSIGN_OR_RETURN(channel.content_type, Text(json, path, "ContentType", ""));
    ASSIGN_OR_RETURN(const std::string mode, Text(json, path, "InputMode", mode_));
    ASSIGN_OR_RETURN(const std::string compression, Text(json, path, "CompressionType", "None"));
    ASSIGN_OR_RETURN(const std::string wrapper, Text(json, path, "RecordWrapperType", "None"));
    for (const auto& [key, value] : {std::pair("mode", mode), {"compression", compression}, {"wrapper", wrapper}})
      RETURN_IF_ERROR(SetChannelOption(key, value, channel));
    if (const auto shuffle = json.find("ShuffleConfig"); shuffle != json.end()) {
      RETURN_IF_ERROR(CheckMembers(*shuffle, path + ".ShuffleConfig", kShuffleMembers));
      ASSIGN_OR_RETURN(channel.shuffle_seed, Number(*shuffle, path + ".ShuffleConfig", "Seed", 0, INT64_MAX));
      if (!channel.shuffle_seed) return Wrong(path + ".ShuffleConfig.Seed", "is missing");
    }
    const auto source = json.find("DataSource");
    if (source == json.end()) return Wrong(path + ".DataSource", "is missing");
    RETURN_IF_ERROR(ReadSource(*source, path + ".DataSource", channel));
    if (const absl::Status status = CheckChannel(channel); !status.ok()) return Annotate(status, path);
    request_.channels.push_back(std::move(channel));
    return absl::OkStatus();
  }

  absl::Status ReadSource(const Json& json, const std::string& path, Channel& channel) {
    RETURN_IF_ERROR(CheckMembers(json, path, kSourceMembers));
    if (json.contains("DatasetSource"))
      return absl::UnimplementedError(
          fmt::format("{}.DatasetSource: only SageMaker has these data; name their S3Uri", path));
    if (json.size() != 1) return Wrong(path, "needs either S3DataSource or FileSystemDataSource");
    const auto s3 = json.find("S3DataSource");
    return s3 != json.end() ? ReadS3(*s3, path + ".S3DataSource", channel)
                            : ReadFileSystem(json.begin().value(), path + ".FileSystemDataSource", channel);
  }

  absl::Status ReadS3(const Json& json, const std::string& path, Channel& channel) {
    RETURN_IF_ERROR(CheckMembers(json, path, kS3Members));
    ASSIGN_OR_RETURN(const std::string type, Text(json, path, "S3DataType", std::nullopt));
    if (type == "Converse")
      return absl::UnimplementedError(fmt::format("{}.S3DataType: Converse is not supported", path));
    RETURN_IF_ERROR(SetChannelOption("type", type, channel));
    ASSIGN_OR_RETURN(const std::string distribution, Text(json, path, "S3DataDistributionType", "FullyReplicated"));
    RETURN_IF_ERROR(SetChannelOption("distribution", distribution, channel));
    ASSIGN_OR_RETURN(channel.uri, Text(json, path, "S3Uri", std::nullopt));
    RETURN_IF_ERROR(ReadNames(json, path, "AttributeNames", channel.attributes));
    return ReadNames(json, path, "InstanceGroupNames", channel.groups);
  }

  absl::Status ReadFileSystem(const Json& json, const std::string& path, Channel& channel) {
    RETURN_IF_ERROR(CheckMembers(json, path, kFileSystemMembers));
    ASSIGN_OR_RETURN(const std::string id, Text(json, path, "FileSystemId", std::nullopt));
    ASSIGN_OR_RETURN(const std::string folder, Text(json, path, "DirectoryPath", std::nullopt));
    const auto mounted = file_systems_.find(id);
    if (mounted == file_systems_.end()) {
      return Wrong(path, fmt::format("say where this machine has the file system: --file-system {}=DIR", id));
    }
    channel.uri = mounted->second + (folder.starts_with('/') ? "" : "/") + folder;
    // SageMaker copies nothing of a file system.
    if (channel.mode == ChannelMode::kFile) channel.mode = ChannelMode::kFastFile;
    return absl::OkStatus();
  }

  static absl::Status ReadNames(const Json& json, const std::string& path, const char* name,
                                std::vector<std::string>& into) {
    const auto found = json.find(name);
    if (found == json.end()) return absl::OkStatus();
    const bool texts = found->is_array() &&
                       std::all_of(found->begin(), found->end(), [](const Json& each) { return each.is_string(); });
    if (!texts) return Wrong(path + "." + name, "is no array of texts");
    into = found->get<std::vector<std::string>>();
    return absl::OkStatus();
  }

  absl::Status ReadOutput(const Json& json) {
    if (const auto output = json.find("OutputDataConfig"); output != json.end()) {
      RETURN_IF_ERROR(CheckMembers(*output, "OutputDataConfig", kOutputMembers));
      ASSIGN_OR_RETURN(request_.output_uri, Text(*output, "OutputDataConfig", "S3OutputPath", std::nullopt));
      ASSIGN_OR_RETURN(const std::string compression, Text(*output, "OutputDataConfig", "CompressionType", "GZIP"));
      if (compression != "GZIP" && compression != "NONE")
        return Wrong("OutputDataConfig.CompressionType", "must be GZIP or NONE");
      request_.output_compressed = compression == "GZIP";
    }
    if (const auto checkpoint = json.find("CheckpointConfig"); checkpoint != json.end()) {
      RETURN_IF_ERROR(CheckMembers(*checkpoint, "CheckpointConfig", kCheckpointMembers));
      ASSIGN_OR_RETURN(request_.checkpoint_uri, Text(*checkpoint, "CheckpointConfig", "S3Uri", std::nullopt));
      ASSIGN_OR_RETURN(request_.checkpoint_folder, Text(*checkpoint, "CheckpointConfig", "LocalPath", ""));
    }
    return absl::OkStatus();
  }

  absl::Status ReadResources(const Json& json) {
    const auto found = json.find("ResourceConfig");
    if (found == json.end()) return absl::OkStatus();
    const std::string path = "ResourceConfig";
    RETURN_IF_ERROR(CheckMembers(*found, path, kResourceMembers));
    uint64_t hosts = 0;
    const auto groups = found->find("InstanceGroups");
    if (groups == found->end()) {
      ASSIGN_OR_RETURN(const std::string type, Text(*found, path, "InstanceType", "local"));
      ASSIGN_OR_RETURN(const std::optional<uint64_t> count, Number(*found, path, "InstanceCount", 1, kMaxInstances));
      AddGroup("homogeneousCluster", type, count.value_or(1), hosts);
      return absl::OkStatus();
    }
    if (!groups->is_array() || groups->empty())
      return Wrong(path + ".InstanceGroups", "is no JSON array, or an empty one");
    for (size_t i = 0; i < groups->size(); ++i) {
      const Json& group = (*groups)[i];
      const std::string place = fmt::format("{}.InstanceGroups[{}]", path, i);
      RETURN_IF_ERROR(CheckMembers(group, place, kGroupMembers));
      ASSIGN_OR_RETURN(const std::string name, Text(group, place, "InstanceGroupName", std::nullopt));
      ASSIGN_OR_RETURN(const std::string type, Text(group, place, "InstanceType", std::nullopt));
      ASSIGN_OR_RETURN(const std::optional<uint64_t> count, Number(group, place, "InstanceCount", 1, kMaxInstances));
      if (!count) return Wrong(place + ".InstanceCount", "is missing");
      AddGroup(name, type, *count, hosts);
    }
    return absl::OkStatus();
  }

  void AddGroup(const std::string& name, const std::string& type, uint64_t count, uint64_t& hosts) {
    InstanceGroup group{.name = name, .type = type, .hosts = {}};
    for (uint64_t i = 0; i < count; ++i) group.hosts.push_back(fmt::format("algo-{}", ++hosts));
    request_.groups.push_back(std::move(group));
  }

  absl::Status ReadLimits(const Json& json) {
    if (const auto stop = json.find("StoppingCondition"); stop != json.end()) {
      RETURN_IF_ERROR(CheckMembers(*stop, "StoppingCondition", kStopMembers));
      ASSIGN_OR_RETURN(request_.max_seconds, Number(*stop, "StoppingCondition", "MaxRuntimeInSeconds", 1, kMaxSeconds));
    }
    if (const auto retry = json.find("RetryStrategy"); retry != json.end()) {
      RETURN_IF_ERROR(CheckMembers(*retry, "RetryStrategy", kRetryMembers));
      ASSIGN_OR_RETURN(request_.retries, Number(*retry, "RetryStrategy", "MaximumRetryAttempts", 1, kMaxRetries));
    }
    return absl::OkStatus();
  }

  const std::map<std::string, std::string>& file_systems_;
  std::string mode_ = "File";
  std::vector<std::string> unknown_;
  JobRequest request_;
};

}  // namespace

absl::StatusOr<JobRequest> ParseJobRequest(std::string_view text,
                                           const std::map<std::string, std::string>& file_systems) {
  constexpr int kMaxDepth = 100;  // of JSON; deeper is no request
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; };
  const Json json = Json::parse(text, shallow, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("it is no JSON");
  return RequestReader(file_systems).Read(json);
}

}  // namespace millrace
