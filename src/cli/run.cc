#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/counted.h"
#include "base/size.h"
#include "channel/file_mode.h"
#include "channel/training_job.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "net/runtime.h"
#include "store/stores.h"
#include "supervisor/supervisor.h"

namespace millrace::cli {

namespace {

struct RunFlags {
  std::vector<std::string> command;
  std::string checkpoint;
  uint64_t retries = 0;
  double delay = 1;
  double grace = 120;
  std::vector<std::string> channels;
  std::vector<std::string> hyperparameters;
  std::string root = "/opt/ml";
  std::string hosts = "algo-1";
  std::string current_host;
};

absl::StatusOr<std::chrono::milliseconds> TakeSeconds(std::string_view option, double seconds) {
  constexpr double kMaxSeconds = 7 * 24 * 3600;
  if (seconds >= 0 && seconds <= kMaxSeconds) return std::chrono::milliseconds(std::llround(seconds * 1000));
  return AsUsage(absl::InvalidArgumentError(fmt::format("{} must be 0 to {} seconds", option, kMaxSeconds)));
}

void Journal(const std::string& text) {
  PrintError("millrace run: {}\n", Printable(text));
}

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
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

absl::StatusOr<TrainingJob> TakeJob(const RunFlags& flags) {
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

// Ends without a thread, as RunSupervised wants it.
absl::Status PrepareJob(const TrainingJob& job) {
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
    Journal(fmt::format("channel {}: {} in {}, of which {} copied now ({})", channel.name,
                        Counted(report->objects, "object"), job.ChannelFolder(channel), report->copied,
                        FormatSize(report->bytes)));
  }
  return absl::OkStatus();
}

bool DescribesJob(const RunFlags& flags) {
  return !flags.channels.empty() || !flags.hyperparameters.empty();
}

absl::StatusOr<int> RunCommand(const RunFlags& flags) {
  if (!flags.checkpoint.empty()) RETURN_IF_ERROR(CheckUri(flags.checkpoint));
  SupervisorOptions options;
  options.command = flags.command;
  options.checkpoint = flags.checkpoint;
  options.retries = flags.retries;
  ASSIGN_OR_RETURN(options.delay, TakeSeconds("--delay", flags.delay));
  ASSIGN_OR_RETURN(options.grace, TakeSeconds("--grace", flags.grace));
  options.journal = Journal;
  if (DescribesJob(flags)) {
    ASSIGN_OR_RETURN(const TrainingJob job, AsUsage(TakeJob(flags)));
    RETURN_IF_ERROR(PrepareJob(job));
    options.variables = JobVariables(job);
  }
  return RunSupervised(options);
}

constexpr const char* kRunFooter =
    R"(The command finds MILLRACE_ATTEMPT (1 for the first), MILLRACE_ATTEMPTS and MILLRACE_CHECKPOINT in its environment;
millrace.Checkpoints() in a Python program uses the last one. SIGTERM, SIGINT and SIGHUP are passed on to the process group
of the command, which is then not started again. What a failed attempt leaves running is killed.

With --channel or --hyperparameter the command finds what SageMaker gives to a training program: the data of each channel
in /opt/ml/input/data/NAME, the configuration files in /opt/ml/input/config, and the variables SM_CHANNEL_NAME, SM_HPS,
SM_MODEL_DIR and so on. The data are copied before the first attempt (File mode); a second run copies what is missing or has
changed.

The exit status is that of the last attempt: 128 + N if signal N ended it, 127 if there is no such program.

Examples:
  millrace run --retries 3 -- python train.py
  millrace run --retries 20 --checkpoint s3://bucket/run-7 -- torchrun --nproc-per-node 8 train.py
  millrace run --channel train=s3://bucket/train --channel eval=/data/eval --hyperparameter lr=0.1 -- python train.py
  millrace run --root /scratch/ml --channel train=s3://bucket/train -- python train.py)";

}  // namespace

void AddRun(Command app) {
  const Command run = app.AddCommand("run", "Run a command, and start it again when it fails or is killed");
  auto flags = std::make_shared<RunFlags>();
  run.Add("command", &flags->command, "The program and its arguments, behind '--'").Required();
  run.Add("--retries", &flags->retries, "How often it is started again: N retries are N + 1 attempts")
      .ShowDefault()
      .Number(0, 1'000'000);
  run.Add("--checkpoint", &flags->checkpoint, "URI of its checkpoints, told in MILLRACE_CHECKPOINT").Called("URI");
  run.Add("--delay", &flags->delay, "Seconds before the first restart; doubles with each failure in a row, to a minute")
      .ShowDefault();
  run.Add("--grace", &flags->grace, "Seconds that the command has to end after SIGTERM or Ctrl-C").ShowDefault();
  run.Add("--channel", &flags->channels,
          "Data for the command, copied to ROOT/input/data/NAME; repeatable, up to 20. After the URI may follow what "
          "SageMaker's channels have: mode=File, content-type=TYPE")
      .OneValueEach()
      .Called("NAME=URI[,KEY=VALUE]");
  run.Add("--hyperparameter", &flags->hyperparameters, "Told in SM_HPS and SM_HP_NAME; repeatable")
      .OneValueEach()
      .Called("NAME=VALUE");
  run.Add("--root", &flags->root, "The folder that programs know as /opt/ml").ShowDefault().Called("DIR");
  run.Add("--hosts", &flags->hosts, "The names of all hosts of the job, with commas between them").ShowDefault();
  run.Add("--current-host", &flags->current_host, "Which of them this is").Called("NAME");
  run.Footer(kRunFooter);
  run.Run([flags] {
    const absl::StatusOr<int> status = RunCommand(*flags);
    return status.ok() ? *status : Fail("run", status.status());
  });
}

}  // namespace millrace::cli
