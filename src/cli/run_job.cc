#include "cli/run_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/counted.h"
#include "base/size.h"
#include "channel/file_mode.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace::cli {

namespace {

int CountGpus() {
  std::error_code error;
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count), error)) ++count;
  return count;
}

// The comma-separated names, sorted, each once.
std::vector<std::string> HostNames(std::string_view text) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) names.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

absl::StatusOr<TrainingJob> TakeJob(const JobFlags& flags) {
  TrainingJob job;
  job.root = std::filesystem::absolute(flags.root).lexically_normal();
  if (job.root.size() > 1 && job.root.ends_with('/')) job.root.pop_back();
  for (const std::string& text : flags.channels) {
    ASSIGN_OR_RETURN(Channel channel, ParseChannel(text));
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
  job.hosts = HostNames(flags.hosts);
  if (job.hosts.empty()) return absl::InvalidArgumentError("--hosts names no host");
  if (flags.current_host.empty() && job.hosts.size() > 1) {
    return absl::InvalidArgumentError("--hosts names several hosts; --current-host says which of them this is");
  }
  job.current_host = flags.current_host.empty() ? job.hosts.front() : flags.current_host;
  job.cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  job.gpus = CountGpus();
  RETURN_IF_ERROR(CheckTrainingJob(job));
  return job;
}

absl::Status PrepareJob(const TrainingJob& job, const std::function<void(const std::string&)>& say) {
  RETURN_IF_ERROR(MakeJobTree(job));
  if (job.channels.empty()) return absl::OkStatus();
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  for (const Channel& channel : job.channels) {
    ProgressLine progress("channel " + channel.name, ProgressLine::Unit::kBytes);
    const FileModeOptions options{
        .progress = [&](const BulkProgress& now) { progress.Update(now.copied_bytes, now.total_bytes); },
        .stop = interrupt.token()};
    absl::StatusOr<FileModeReport> report = FillChannel(stores, job, channel, options);
    progress.Clear();
    if (!report.ok()) return HintAtS3(report.status(), {channel.uri});
    say(fmt::format("channel {}: {} in {}, of which {} copied now ({})", channel.name,
                    Counted(report->objects, "object"), job.ChannelFolder(channel), report->copied,
                    FormatSize(report->bytes)));
  }
  return absl::OkStatus();
}

}  // namespace millrace::cli
