#include "cli/run_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/size.h"
#include "channel/checkpoint_mirror.h"
#include "channel/file_mode.h"
#include "channel/pipe_feeder.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "net/runtime.h"
#include "store/stores.h"
#include "store/uri.h"
#include "transfer/key_pattern.h"

namespace millrace::cli {

namespace {

int CountGpus() {
  std::error_code error;
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count), error)) ++count;
  return count;
}

// The names, sorted, each once.
std::vector<std::string> HostNames(std::string_view text, char between) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(between, begin), text.size());
    if (end > begin) names.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// GROUP=HOST+HOST
absl::StatusOr<InstanceGroup> TakeGroup(const std::string& text) {
  const size_t equals = text.find('=');
  InstanceGroup group{.name = text.substr(0, equals), .hosts = {}};
  if (equals != std::string::npos) group.hosts = HostNames(std::string_view(text).substr(equals + 1), '+');
  if (!group.name.empty() && !group.hosts.empty()) return group;
  return absl::InvalidArgumentError(fmt::format("--instance-group takes GROUP=HOST[+HOST...], not '{}'", text));
}

absl::Status TakeHosts(const JobFlags& flags, std::vector<InstanceGroup> requested, TrainingJob& job) {
  job.groups = std::move(requested);
  if (!flags.groups.empty()) job.groups.clear();
  for (const std::string& text : flags.groups) {
    ASSIGN_OR_RETURN(InstanceGroup group, TakeGroup(text));
    job.groups.push_back(std::move(group));
  }
  if (flags.hosts && flags.groups.empty() && job.groups.size() == 1) {
    job.groups.front().hosts = HostNames(*flags.hosts, ',');  // a request names none
  }
  std::vector<std::string> grouped;
  for (InstanceGroup& group : job.groups) {
    std::ranges::sort(group.hosts);
    grouped.insert(grouped.end(), group.hosts.begin(), group.hosts.end());
  }
  std::ranges::sort(grouped);
  if (flags.hosts) {
    job.hosts = HostNames(*flags.hosts, ',');
  } else if (!grouped.empty()) {
    job.hosts = grouped;
  }
  if (job.hosts.empty()) return absl::InvalidArgumentError("--hosts names no host");
  if (flags.current_host.empty() && job.hosts.size() > 1)
    return absl::InvalidArgumentError("there are several hosts; --current-host says which of them this is");
  job.current_host = flags.current_host.empty() ? job.hosts.front() : flags.current_host;
  return absl::OkStatus();
}

absl::StatusOr<JobRequest> TakeRequest(const JobFlags& flags) {
  if (flags.request.empty()) return JobRequest();
  std::map<std::string, std::string> file_systems;
  for (const std::string& text : flags.file_systems) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return absl::InvalidArgumentError(fmt::format("--file-system takes ID=DIR, not '{}'", text));
    file_systems[text.substr(0, equals)] = std::filesystem::absolute(text.substr(equals + 1));
  }
  std::ifstream file(flags.request, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    return absl::InvalidArgumentError(fmt::format("--job: {} cannot be read", flags.request));
  absl::StatusOr<JobRequest> request = ParseJobRequest(text.str(), file_systems);
  if (!request.ok()) return Annotate(request.status(), flags.request);
  return request;
}

absl::Status CopyChannel(Stores& stores, const TrainingJob& job, const Channel& channel, JobLineage* lineage,
                         const std::stop_token& stop, const std::function<void(const std::string&)>& say) {
  ProgressLine progress("channel " + channel.name, ProgressLine::Unit::kBytes);
  FileModeOptions options{
      .progress = [&](const BulkProgress& now) { progress.Update(now.copied_bytes, now.total_bytes); }, .stop = stop};
  if (lineage != nullptr) {
    options.found = [&](const std::string& uri, const ObjectInfo& object) {
      return lineage->Object(channel, uri, object);
    };
  }
  absl::StatusOr<FileModeReport> report = FillChannel(stores, job, channel, options);
  progress.Clear();
  if (!report.ok()) return HintAtS3(report.status(), {channel.uri});
  say(fmt::format("channel {}: {} in {}, of which {} copied now ({})", channel.name, Counted(report->objects, "object"),
                  job.ChannelFolder(channel), report->copied, FormatSize(report->bytes)));
  return absl::OkStatus();
}

// What is served of a channel in Pipe or FastFile mode.
absl::Status FindServed(Stores& stores, const TrainingJob& job, const Channel& channel, JobLineage* lineage,
                        const std::stop_token& stop, ServedChannels& served) {
  // The folder of a mount is listed only if need be: it may be large.
  bool listed = channel.mode == ChannelMode::kPipe || channel.type != ChannelType::kS3Prefix || channel.sharded;
  if (!listed) {
    ASSIGN_OR_RETURN(listed, NamesObject(stores, channel.uri, stop));
  }
  std::optional<ChannelItems> items;
  if (listed) {
    absl::StatusOr<ChannelItems> found = FindChannelItems(stores, channel, stop);
    if (!found.ok()) return HintAtS3(found.status(), {channel.uri});
    items = *std::move(found);
  }
  if (channel.mode == ChannelMode::kFastFile && channel.sharded)
    KeepShare(*items, job.RankIn(channel), job.HostsOf(channel).size());
  if (items && lineage != nullptr) RETURN_IF_ERROR(lineage->Objects(channel, *items));
  if (channel.mode == ChannelMode::kPipe) {
    served.pipes.push_back({channel, *std::move(items)});
  } else {
    served.mounts.push_back({channel, std::move(items)});
  }
  return absl::OkStatus();
}

absl::Status BringCheckpoints(Stores& stores, const JobPlaces& places, const std::stop_token& stop,
                              const std::function<void(const std::string&)>& say) {
  RETURN_IF_ERROR(MakeFolder(places.checkpoint_folder, places.checkpoint_folder, Durability::kUnsynced));
  ASSIGN_OR_RETURN(Location from, stores.Open(places.checkpoints));
  ASSIGN_OR_RETURN(Location to, stores.Open(places.checkpoint_folder));
  from.prefix = AsFolder(from.prefix);
  to.prefix = AsFolder(to.prefix);
  const absl::StatusOr<BulkReport> brought = RestoreCheckpoints(from, to, stop);
  if (!brought.ok()) return HintAtS3(brought.status(), {places.checkpoints});
  if (brought->objects > 0) {
    say(fmt::format("checkpoints: {} from {} ({})", Counted(brought->objects, "file"), places.checkpoints,
                    FormatSize(brought->bytes)));
  }
  return absl::OkStatus();
}

// Where the output of a request's job goes, as on SageMaker.
std::string RequestedOutput(const JobRequest& request) {
  if (request.output_uri.empty()) return "";
  std::string uri = request.output_uri;
  while (uri.ends_with('/')) uri.pop_back();
  return request.name.empty() ? uri + "/output" : fmt::format("{}/{}/output", uri, request.name);
}

absl::StatusOr<JobPlaces> TakePlaces(const JobFlags& flags, const JobRequest& request, const TrainingJob& job) {
  JobPlaces places;
  places.max_seconds = request.max_seconds;
  if (flags.max_runtime) {
    ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, TakeDuration("--max-runtime", *flags.max_runtime));
    places.max_seconds = static_cast<uint64_t>(std::chrono::ceil<std::chrono::seconds>(time).count());
  }
  places.output = flags.output.empty() ? RequestedOutput(request) : flags.output;
  places.archives = request.output_compressed || !flags.output.empty();
  places.checkpoints = flags.checkpoints.empty() ? request.checkpoint_uri : flags.checkpoints;
  places.checkpoint_folder = request.checkpoint_folder.empty() ? job.root + "/checkpoints" : request.checkpoint_folder;
  for (const std::string& uri : {places.output, places.checkpoints}) {
    if (!uri.empty()) RETURN_IF_ERROR(ParseUri(uri).status());
  }
  return places;
}

}  // namespace

absl::StatusOr<DescribedJob> TakeJob(const JobFlags& flags) {
  DescribedJob described;
  ASSIGN_OR_RETURN(described.request, TakeRequest(flags));
  JobRequest& request = described.request;
  TrainingJob& job = described.job;
  job.root = std::filesystem::absolute(flags.root).lexically_normal();
  if (job.root.size() > 1 && job.root.ends_with('/')) job.root.pop_back();
  for (const std::string& text : flags.channels) {
    ASSIGN_OR_RETURN(Channel channel, ParseChannel(text));
    std::erase_if(request.channels, [&](const Channel& other) { return other.name == channel.name; });
    job.channels.push_back(std::move(channel));
  }
  for (const std::string& text : flags.hyperparameters) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos ||
        !job.hyperparameters.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(
          fmt::format("--hyperparameter takes NAME=VALUE, each name once, not '{}'", text));
    }
  }
  job.channels.insert(job.channels.begin(), request.channels.begin(), request.channels.end());
  job.hyperparameters.merge(request.hyperparameters);
  RETURN_IF_ERROR(TakeHosts(flags, request.groups, job));
  job.cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  job.gpus = CountGpus();
  RETURN_IF_ERROR(CheckTrainingJob(job));
  ASSIGN_OR_RETURN(described.places, TakePlaces(flags, request, job));
  // What other groups get is none of this host's business.
  std::erase_if(job.channels,
                [&](const Channel& channel) { return job.RankIn(channel) == job.HostsOf(channel).size(); });
  return described;
}

absl::StatusOr<ServedChannels> PrepareJob(const TrainingJob& job, const JobPlaces& places,
                                          const std::function<void(const std::string&)>& say) {
  // What a job that was killed has left, in whatever mode it had the channel.
  for (const Channel& channel : job.channels) {
    RETURN_IF_ERROR(RemoveDeadMount(job.ChannelFolder(channel)));
    RemoveStalePipes(job.ChannelFolder(channel));
  }
  RETURN_IF_ERROR(MakeJobTree(job));
  ServedChannels served;
  if (job.channels.empty() && places.checkpoints.empty()) return served;
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  if (!places.checkpoints.empty()) RETURN_IF_ERROR(BringCheckpoints(stores, places, interrupt.token(), say));
  for (const Channel& channel : job.channels) {
    if (channel.mode == ChannelMode::kFile) {
      RETURN_IF_ERROR(CopyChannel(stores, job, channel, places.lineage, interrupt.token(), say));
    } else {
      RETURN_IF_ERROR(FindServed(stores, job, channel, places.lineage, interrupt.token(), served));
    }
    if (places.lineage != nullptr) RETURN_IF_ERROR(places.lineage->End(job, channel));
  }
  return served;
}

}  // namespace millrace::cli
