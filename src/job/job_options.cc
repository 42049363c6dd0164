#include "job/job_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/file_text.h"
#include "store/uri.h"

namespace millrace {

namespace {

constexpr size_t kMaxHyperparametersBytes = 1 << 20;
constexpr size_t kMaxValueBytes = 64 << 10;

int CountGpus() {
  std::error_code error;
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count), error)) ++count;
  return count;
}

// Returns the names, sorted, each once.
std::vector<std::string> HostNames(std::string_view text, char between) {
  const std::set<std::string> names = absl::StrSplit(ToAbsl(text), between, absl::SkipEmpty());
  return {names.begin(), names.end()};
}

// GROUP=HOST+HOST
absl::StatusOr<InstanceGroup> TakeGroup(const std::string& text) {
  const size_t equals = text.find('=');
  InstanceGroup group{.name = text.substr(0, equals), .hosts = {}};
  if (equals != std::string::npos) group.hosts = HostNames(std::string_view(text).substr(equals + 1), '+');
  if (!group.name.empty() && !group.hosts.empty()) return group;
  return absl::InvalidArgumentError(fmt::format("--instance-group takes GROUP=HOST[+HOST...], not '{}'", text));
}

absl::Status TakeHosts(const JobOptions& options, std::vector<InstanceGroup> requested, TrainingJob& job) {
  job.groups = std::move(requested);
  if (!options.groups.empty()) job.groups.clear();
  for (const std::string& text : options.groups) {
    ASSIGN_OR_RETURN(InstanceGroup group, TakeGroup(text));
    job.groups.push_back(std::move(group));
  }
  if (options.hosts && options.groups.empty() && job.groups.size() == 1) {
    job.groups.front().hosts = HostNames(*options.hosts, ',');  // a request names none
  }
  std::vector<std::string> grouped;
  for (InstanceGroup& group : job.groups) {
    std::ranges::sort(group.hosts);
    grouped.insert(grouped.end(), group.hosts.begin(), group.hosts.end());
  }
  std::ranges::sort(grouped);
  if (options.hosts) {
    job.hosts = HostNames(*options.hosts, ',');
  } else if (!grouped.empty()) {
    job.hosts = grouped;
  }
  if (job.hosts.empty()) return absl::InvalidArgumentError("--hosts names no host");
  if (options.current_host.empty() && job.hosts.size() > 1)
    return absl::InvalidArgumentError("there are several hosts; --current-host says which of them this is");
  job.current_host = options.current_host.empty() ? job.hosts.front() : options.current_host;
  return absl::OkStatus();
}

absl::StatusOr<JobRequest> TakeRequest(const JobOptions& options) {
  if (options.request.empty()) return JobRequest();
  std::map<std::string, std::string> file_systems;
  for (const std::string& text : options.file_systems) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return absl::InvalidArgumentError(fmt::format("--file-system takes ID=DIR, not '{}'", text));
    file_systems[text.substr(0, equals)] = std::filesystem::absolute(text.substr(equals + 1));
  }
  std::ifstream file(options.request, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    return absl::InvalidArgumentError(fmt::format("--job: {} cannot be read", options.request));
  absl::StatusOr<JobRequest> request = ParseJobRequest(text.str(), file_systems);
  if (!request.ok()) return Annotate(request.status(), options.request);
  return request;
}

absl::StatusOr<std::string> ReadOptionFile(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(std::string text, ReadFileText(path, max_bytes + 1));
  if (text.size() <= max_bytes) return text;
  return absl::InvalidArgumentError(fmt::format("{} has more than {} bytes", path, max_bytes));
}

absl::StatusOr<std::map<std::string, std::string>> ReadHyperparameters(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadOptionFile(path, kMaxHyperparametersBytes));
  absl::StatusOr<std::map<std::string, std::string>> read = ParseHyperparameters(text);
  if (!read.ok()) return Annotate(read.status(), path);
  return read;
}

// Takes those of the options; the caller adds those of a request.
absl::Status TakeHyperparameters(const JobOptions& options, DescribedJob& described) {
  std::map<std::string, std::string>& all = described.job.hyperparameters;
  for (const std::string& text : options.hyperparameters) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(
          fmt::format("--hyperparameter takes NAME=VALUE, each name once, not '{}'", text));
    }
    // Its value may be a secret.
    const std::string name = text.substr(0, equals);
    if (!all.emplace(name, text.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(
          fmt::format("--hyperparameter takes NAME=VALUE, each name once, and '{}' stands there twice", name));
    }
  }
  for (const std::string& text : options.hyperparameter_files) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals == std::string::npos || all.contains(name)) {
      return absl::InvalidArgumentError(
          fmt::format("--hyperparameter-file takes NAME=FILE, each name once, not '{}'", text));
    }
    absl::StatusOr<std::string> value = ReadOptionFile(text.substr(equals + 1), kMaxValueBytes);
    if (!value.ok()) return Annotate(value.status(), "--hyperparameter-file");
    if (value->ends_with('\n')) value->pop_back();
    all.emplace(name, *std::move(value));
    described.secrets.insert(name);
  }
  if (options.hyperparameters_file.empty()) return absl::OkStatus();
  absl::StatusOr<std::map<std::string, std::string>> read = ReadHyperparameters(options.hyperparameters_file);
  if (!read.ok()) return Annotate(read.status(), "--hyperparameters");
  all.merge(*read);
  return absl::OkStatus();
}

// Returns the place of the output of a request's job, as on SageMaker.
std::string RequestedOutput(const JobRequest& request) {
  if (request.output_uri.empty()) return "";
  std::string uri = request.output_uri;
  while (uri.ends_with('/')) uri.pop_back();
  return request.name.empty() ? uri + "/output" : fmt::format("{}/{}/output", uri, request.name);
}

absl::StatusOr<JobPlaces> TakePlaces(const JobOptions& options, const JobRequest& request, const TrainingJob& job) {
  JobPlaces places;
  places.max_seconds = request.max_seconds;
  if (options.max_seconds) places.max_seconds = options.max_seconds;
  places.output = options.output.empty() ? RequestedOutput(request) : options.output;
  places.archives = request.output_compressed || !options.output.empty();
  places.checkpoints = options.checkpoints.empty() ? request.checkpoint_uri : options.checkpoints;
  places.checkpoint_folder = request.checkpoint_folder.empty() ? job.root + "/checkpoints" : request.checkpoint_folder;
  for (const std::string& uri : {places.output, places.checkpoints}) {
    if (!uri.empty()) RETURN_IF_ERROR(ParseUri(uri).status());
  }
  return places;
}

}  // namespace

absl::StatusOr<DescribedJob> TakeJob(const JobOptions& options) {
  DescribedJob described;
  ASSIGN_OR_RETURN(described.request, TakeRequest(options));
  JobRequest& request = described.request;
  TrainingJob& job = described.job;
  job.root = std::filesystem::absolute(options.root).lexically_normal();
  if (job.root.size() > 1 && job.root.ends_with('/')) job.root.pop_back();
  for (const std::string& text : options.channels) {
    ASSIGN_OR_RETURN(Channel channel, ParseChannel(text));
    std::erase_if(request.channels, [&](const Channel& other) { return other.name == channel.name; });
    job.channels.push_back(std::move(channel));
  }
  RETURN_IF_ERROR(TakeHyperparameters(options, described));
  job.channels.insert(job.channels.begin(), request.channels.begin(), request.channels.end());
  job.hyperparameters.merge(request.hyperparameters);
  RETURN_IF_ERROR(TakeHosts(options, request.groups, job));
  job.cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  job.gpus = CountGpus();
  RETURN_IF_ERROR(CheckTrainingJob(job));
  ASSIGN_OR_RETURN(described.places, TakePlaces(options, request, job));
  // This host does not get the channels of other groups.
  std::erase_if(job.channels,
                [&](const Channel& channel) { return job.RankIn(channel) == job.HostsOf(channel).size(); });
  return described;
}

}  // namespace millrace
