#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aws/credential_chain.h"
#include "base/bytes.h"
#include "base/crypto.h"
#include "base/errno_status.h"
#include "channel/job_root.h"
#include "channel/user_arguments.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/metrics_option.h"
#include "cli/run_code.h"
#include "cli/run_flags.h"
#include "cli/run_group.h"
#include "cli/run_job.h"
#include "cli/run_manifest.h"
#include "cli/run_metrics.h"
#include "cli/run_print.h"
#include "cli/usage.h"
#include "cli/volume_commands.h"
#include "supervisor/job_process.h"
#include "supervisor/notice_watcher.h"
#include "supervisor/supervisor.h"

namespace millrace::cli {

namespace {

absl::StatusOr<std::chrono::milliseconds> TakeMilliseconds(std::string_view option, const std::string& text) {
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, TakeDuration(option, text));
  return std::chrono::ceil<std::chrono::milliseconds>(time);
}

void SayLine(const std::string& text) {
  PrintError("millrace run: {}\n", Printable(text));
}

// "SIGUSR1", "USR1" or "none", which is 0.
absl::StatusOr<int> TakeSignal(std::string_view text) {
  if (text == "none") return 0;
  const std::string name(text.starts_with("SIG") ? text.substr(3) : text);
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    const char* const known = sigabbrev_np(signal);
    if (known != nullptr && name == known && signal != SIGKILL && signal != SIGSTOP) return signal;
  }
  return AsUsage(absl::InvalidArgumentError(fmt::format(
      "--on-notice: '{}' is no signal that a program can take; give SIGTERM, SIGUSR1 or none, for instance", text)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(fmt::format("{}: there is no such file, or it cannot be read", path));
  return std::move(text).str();
}

absl::StatusOr<RestartOptions> TakeRestart(const RunFlags& flags) {
  RestartOptions restart;
  for (const std::string& text : flags.on_exit) {
    absl::StatusOr<ExitRule> rule = ParseExitRule(text);
    if (!rule.ok()) return AsUsage(Annotate(rule.status(), "--on-exit"));
    restart.rules.push_back(*std::move(rule));
  }
  std::optional<uint64_t> retries = flags.retries;
  if (!flags.rules.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.rules));
    absl::StatusOr<RetryStrategy> strategy = ParseRetryStrategy(text);
    if (!strategy.ok()) return AsUsage(Annotate(strategy.status(), fmt::format("--rules {}", flags.rules)));
    if (!retries && strategy->attempts) retries = static_cast<uint64_t>(*strategy->attempts) - 1;
    for (ExitRule& rule : strategy->rules) restart.rules.push_back(std::move(rule));
  }
  restart.retries = retries.value_or(0);
  ASSIGN_OR_RETURN(restart.delay, TakeMilliseconds("--delay", flags.delay));
  restart.fast_failures = flags.fast_failures;
  restart.requeue_exit = static_cast<int>(flags.requeue_exit);
  return restart;
}

absl::StatusOr<AttemptLimits> TakeLimits(const RunFlags& flags) {
  AttemptLimits limits;
  ASSIGN_OR_RETURN(limits.grace, TakeMilliseconds("--grace", flags.grace));
  if (flags.hang_after) {
    ASSIGN_OR_RETURN(limits.hang_after, TakeMilliseconds("--hang-after", *flags.hang_after));
    if (limits.hang_after->count() == 0) return AsUsage(absl::InvalidArgumentError("--hang-after must be more than 0"));
  }
  if (flags.on_notice) {
    ASSIGN_OR_RETURN(limits.notice_signal, TakeSignal(*flags.on_notice));
  }
  return limits;
}

// nullopt: there is nobody to ask. Elsewhere than on EC2 it is asked only if the user expects it to be there.
absl::StatusOr<std::optional<EndpointUrl>> FindMetadataService(bool expected) {
  const AwsEnvironment environment = ProcessEnvironment();
  const bool named = !environment.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or("").empty();
  if (!expected && !named && !IsEc2Instance()) return std::nullopt;
  absl::StatusOr<AwsSettings> settings = AwsSettings::Load(environment);
  if (!settings.ok()) {
    // Whether the profile of the command is right is its own business: only variables are looked at.
    const AwsEnvironment variables{
        [&environment](const std::string& name) {
          return name == "AWS_PROFILE" || name == "AWS_DEFAULT_PROFILE" ? std::nullopt : environment.variable(name);
        },
        [](const std::string& path) -> absl::StatusOr<std::string> { return absl::NotFoundError(path); }};
    settings = AwsSettings::Load(variables);
  }
  if (!settings.ok()) return std::move(settings).status();
  return AsUsage(InstanceMetadataService(*settings));
}

// The command runs in the folder of its code.
absl::Status TakeCode(const RunFlags& flags, SupervisorOptions& options) {
  ASSIGN_OR_RETURN(const CodeSource code, AsUsage(ParseCodeSource(flags.code)));
  options.folder = std::filesystem::absolute(flags.code_dir).lexically_normal();
  if (!options.checkpoint.empty() && options.checkpoint.find("://") == std::string::npos)
    options.checkpoint = std::filesystem::absolute(options.checkpoint).lexically_normal();
  ASSIGN_OR_RETURN(options.code, CheckOutCode(code, options.folder, options.checkpoint));
  options.variables["MILLRACE_CODE_COMMIT"] = options.code;
  SayLine(fmt::format("the code is commit {} of {}", options.code, WithoutUser(code.url)));
  return absl::OkStatus();
}

// The job that the flags describe, and those of its channels that are served while it runs.
struct PreparedJob {
  std::optional<JobRoot> root;  // held to the end
  TrainingJob job;
  ServedChannels channels;
  std::unique_ptr<ChannelMounts> mounts;
  std::unique_ptr<JobLineage> lineage;  // nullptr: not wanted
  JobPlaces places;
};

// Two runs with the same identity are runs of one job, so the second one may continue with the files of the first.
// Limits and records do not count, so that they can be changed.
std::string JobIdentity(const RunFlags& flags, const TrainingJob& job, const JobPlaces& places) {
  std::vector<std::string> words{places.checkpoints, flags.checkpoint, places.output, job.current_host};
  if (places.checkpoints.empty() && flags.checkpoint.empty()) {
    words.insert(words.end(), flags.command.begin(), flags.command.end());
    words.push_back(flags.code);
    for (const auto& [name, value] : job.hyperparameters) words.push_back(fmt::format("{}={}", name, value));
    for (const Channel& channel : job.channels) words.push_back(fmt::format("{}={}", channel.name, channel.uri));
  }
  std::string text;
  for (const std::string& word : words) text += fmt::format("{}:{}", word.size(), word);
  return HexEncode(Sha256(AsBytes(text)));
}

// The hyperparameters become words of the command, as SageMaker's toolkit has it.
void GiveArguments(const RunFlags& flags, const TrainingJob& job, SupervisorOptions& options) {
  const std::vector<std::string> arguments = UserArguments(job);
  if (flags.job.no_arguments || arguments.empty()) return;
  options.command = WithArguments(std::move(options.command), arguments, job.EntryPoint());
  if (options.command != flags.command) return;
  SayLine(
      "the command gets the hyperparameters in variables only (SM_HPS, SM_HP_*), since it is not one Python script. "
      "To give it arguments, name the program in the hyperparameter sagemaker_program. To silence this message, say "
      "--no-hyperparameter-args");
}

// What has to be there before the first attempt.
absl::Status Prepare(const RunFlags& flags, SupervisorOptions& options, PreparedJob& prepared) {
  for (const std::string& text : flags.volumes) {
    ASSIGN_OR_RETURN(const VolumeFlags volume, ParseVolumeOption(text));
    absl::StatusOr<VolumeHere> here = BringVolume(volume, SayLine);
    if (!here.ok()) return Annotate(here.status(), fmt::format("--volume {}", volume.name));
  }
  if (flags.job.DescribeJob()) {
    ASSIGN_OR_RETURN(DescribedJob described, AsUsage(TakeJob(flags.job)));
    prepared.job = std::move(described.job);
    prepared.places = std::move(described.places);
    // Before the failure file is known: that of another job is not this one's to remove.
    ASSIGN_OR_RETURN(prepared.root, JobRoot::Take(prepared.job.root, JobIdentity(flags, prepared.job, prepared.places),
                                                  prepared.places.checkpoint_folder, SayLine));
    if (!flags.job.lineage.empty()) {
      ASSIGN_OR_RETURN(prepared.lineage, JobLineage::Open(flags.job.lineage));
      prepared.places.lineage = prepared.lineage.get();
    }
    options.variables = JobVariables(prepared.job);
    options.variables.merge(described.request.environment);
    GiveArguments(flags, prepared.job, options);
    if (!described.request.name.empty()) options.variables.emplace("TRAINING_JOB_NAME", described.request.name);
    if (!flags.retries && described.request.retries) options.restart.retries = *described.request.retries;
    if (!described.request.no_effect.empty())
      SayLine(
          fmt::format("{}: without effect here: {}", flags.job.request, fmt::join(described.request.no_effect, ", ")));
    if (options.failure_file.empty()) options.failure_file = prepared.job.root + "/output/failure";
    absl::StatusOr<ServedChannels> channels = PrepareJob(prepared.job, prepared.places, SayLine);
    RETURN_IF_ERROR(prepared.root->RecordResources());
    ASSIGN_OR_RETURN(prepared.channels, std::move(channels));
  }
  if (!flags.code.empty()) RETURN_IF_ERROR(TakeCode(flags, options));
  ASSIGN_OR_RETURN(prepared.mounts, ChannelMounts::Make(prepared.job, prepared.channels.mounts, SayLine));
  return absl::OkStatus();
}

// The job goes on on another machine, which need not wait for the end of this one.
void ReleaseVolumes(const RunFlags& flags) {
  for (const std::string& text : flags.volumes) {
    const absl::StatusOr<VolumeFlags> volume = ParseVolumeOption(text);
    const absl::Status released = volume.ok() ? ReleaseVolume(*volume, SayLine) : volume.status();
    if (!released.ok()) SayLine(std::string(ToStd(released.message())));
  }
}

// Closes its journal, its records and its mounts at the end.
absl::StatusOr<int> RunPrepared(const RunFlags& flags) {
  for (const std::string& text : flags.volumes) RETURN_IF_ERROR(ParseVolumeOption(text).status());
  if (!flags.print.empty()) {
    ASSIGN_OR_RETURN(const std::string file, PrintRunFile(flags));
    RETURN_IF_ERROR(WriteStdout(file));
    return 0;
  }
  HoldNotices();  // Prepare may take long
  if (!flags.checkpoint.empty()) RETURN_IF_ERROR(CheckUri(flags.checkpoint));
  SupervisorOptions options;
  options.command = flags.command;
  options.checkpoint = flags.checkpoint;
  ASSIGN_OR_RETURN(options.restart, TakeRestart(flags));
  ASSIGN_OR_RETURN(options.limits, TakeLimits(flags));
  ASSIGN_OR_RETURN(const std::optional<MetricsAddress> metrics_address, TakeMetricsPort(flags.metrics_port));
  ASSIGN_OR_RETURN(options.metadata_service, FindMetadataService(flags.on_notice.has_value()));
  options.log_folder = flags.log_dir;
  ASSIGN_OR_RETURN(options.log_bytes, TakeSize("--log-size", flags.log_size));
  if (options.log_bytes < 1024) return AsUsage(absl::InvalidArgumentError("--log-size must be 1 KiB at least"));
  options.failure_file = flags.failure_file;
  options.on_success = flags.on_success;
  options.on_end = flags.on_end;
  ASSIGN_OR_RETURN(options.hook_limit, TakeMilliseconds("--hook-limit", flags.hook_limit));
  options.say = SayLine;
  RunMetrics counts;
  std::unique_ptr<MetricsServer> metrics;
  options.on_event = [&counts](std::string_view event, const RunJournal::Fields& fields) {
    counts.OnEvent(event, fields);
  };
  options.begin = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(metrics, ServeMetrics(metrics_address, [&counts](MetricsText* text) {
                       CollectProcess(text);
                       counts.Collect(text);
                     }));
    return absl::OkStatus();
  };
  std::unique_ptr<RunJournal> journal;
  if (!flags.journal.empty()) {
    ASSIGN_OR_RETURN(journal, RunJournal::Open(flags.journal));
    options.journal = journal.get();
  }
  PreparedJob prepared;
  if (absl::Status status = Prepare(flags, options, prepared); !status.ok()) {
    EndBeforeBegin(options, std::string(ToStd(status.message())));
    return status;
  }
  const bool served = prepared.channels.any() || prepared.places.any();
  return served ? RunServed(prepared.job, prepared.channels.pipes, *prepared.mounts, prepared.places, options)
                : RunSupervised(options);
}

absl::StatusOr<int> RunCommand(const RunFlags& flags) {
  const absl::StatusOr<int> status = RunPrepared(flags);
  // A volume with an open file, or with a mount below it, cannot be unmounted: this comes after all is closed.
  if (status.ok() && static_cast<uint64_t>(*status) == flags.requeue_exit) ReleaseVolumes(flags);
  return status;
}

absl::StatusOr<int> RunCommandOrGroup(const RunFlags& flags) {
  const bool prints_groups = flags.print == "slurm-script" || flags.print == "jobset";
  if (flags.group.groups.empty()) {
    if (prints_groups)
      return AsUsage(
          absl::InvalidArgumentError(fmt::format("--print {} is for groups; name them with --group", flags.print)));
    if (flags.command.empty()) return AsUsage(absl::InvalidArgumentError("name the command, behind '--'"));
    return RunCommand(flags);
  }
  if (!flags.command.empty()) {
    return AsUsage(absl::InvalidArgumentError("with --group there is no command behind '--'; each group has its own"));
  }
  const auto supervise = [&flags](const std::vector<std::string>& command) {
    RunFlags own = flags;
    own.command = command;
    const absl::StatusOr<int> status = RunCommand(own);
    return status.ok() ? *status : Fail("run", status.status());
  };
  if (prints_groups) {
    ASSIGN_OR_RETURN(const std::string text, AsUsage(Manifest(flags)));
    RETURN_IF_ERROR(WriteStdout(text));
    return 0;
  }
  if (!flags.print.empty()) {
    return AsUsage(
        absl::InvalidArgumentError(fmt::format("--print {} is for one command, not for --group", flags.print)));
  }
  return RunInGroup(flags.group, static_cast<int>(flags.requeue_exit), supervise, SayLine);
}

constexpr const char* kRunFooter =
    R"(The command finds MILLRACE_ATTEMPT (1 for the first), MILLRACE_ATTEMPTS and MILLRACE_CHECKPOINT in its environment;
millrace.Checkpoints() in a Python program uses the last one. SIGTERM, SIGINT and SIGHUP are passed on to the command,
which is then not started again; its process group is killed after --grace. What a failed attempt leaves running is killed.

On EC2 the metadata service (IMDSv2) is asked every two seconds whether the instance will be interrupted, stopped for
maintenance, or ended by its Auto Scaling group; SIGUSR1 or SIGUSR2 to `millrace run` says the same. The command then gets
a signal (--on-notice) and has until five seconds before the announced time to save and to end; if nothing was announced,
--grace. A Python program that calls millrace.notice() gets no signal, unless --on-notice asks for one. It is not started
again here: the exit status is then 75 (--requeue-exit), on which a scheduler can start the job on another machine.

With --channel or --hyperparameter the command finds what SageMaker gives to a training program: the data of each channel
in /opt/ml/input/data/NAME, the configuration files in /opt/ml/input/config, and the variables SM_CHANNEL_NAME, SM_HPS,
SM_MODEL_DIR and so on. The data are copied before the first attempt (File mode); a second run copies what is missing or has
changed. With mode=FastFile nothing is copied: the folder is a file system that reads what the command reads. With mode=Pipe
the command reads each epoch from a pipe, NAME_0, NAME_1 and so on (docs/channels.md).

With --group each host of a job runs the command of its own group, and all hosts end together (docs/groups.md).

The exit status is that of the last attempt: 128 + N if signal N ended it, 127 if there is no such program, 124 if it hung
and then exited with 0; 75 if it has to go on elsewhere.

Examples:
  millrace run --retries 3 -- python train.py
  millrace run --retries 20 --checkpoint s3://bucket/run-7 -- torchrun --nproc-per-node 8 train.py
  millrace run --retries 20 --hang-after 10m --log-dir logs --journal run.jsonl -- python train.py
  millrace run --retries 20 --on-exit code=2:exit --on-exit 'reason=OutOfMemory*:exit' -- python train.py
  millrace run --retries 20 --on-notice SIGUSR1 --on-end ./cancel-fleet.sh -- python train.py
  millrace run --code https://github.com/me/train@v1.2 --checkpoint s3://bucket/run-7 -- python train.py
  millrace run --channel train=s3://bucket/train --channel eval=/data/eval --hyperparameter lr=0.1 -- python train.py
  millrace run --group data='millrace worker --listen 0.0.0.0:7070 --token-file t --allow s3://b/train' --group train='torchrun train.py'
  millrace run --root /scratch/ml --channel train=s3://bucket/train -- python train.py
  millrace run --channel train=s3://bucket/train,mode=FastFile -- python train.py
  millrace run --channel train=s3://bucket/train,mode=Pipe,wrapper=RecordIO,shuffle-seed=7 -- python train.py
  millrace run --print user-data --retries 20 --checkpoint s3://bucket/run-7 -- python train.py)";

void AddRestartOptions(const Command& run, RunFlags* flags) {
  run.Add("--retries", &flags->retries, "How often it is started again: N retries are N + 1 attempts (default: 0)")
      .Number(0, 1'000'000);
  run.Add("--delay", &flags->delay, "Time before the first restart; doubles with each failure in a row, to a minute")
      .ShowDefault();
  run.Add("--fast-failures", &flags->fast_failures,
          "This many failures in a row, each within 10 seconds, end the job; 0: no limit")
      .ShowDefault()
      .Number(0, 1'000'000);
  run.Add("--on-exit", &flags->on_exit,
          "Whether it is started again after some exits: code=2:exit, code=64..78:exit, reason=Hang*:retry; "
          "repeatable, the "
          "first that matches counts")
      .OneValueEach()
      .Called("CONDITION[,CONDITION]:ACTION");
  run.Add("--rules", &flags->rules,
          "The same, as the retryStrategy of an AWS Batch job definition in JSON; its attempts "
          "count unless there is --retries")
      .Called("FILE");
  run.Add("--hang-after", &flags->hang_after,
          "End and restart it if it prints nothing, and does not call millrace.heartbeat(), for so long (10m, 90s)")
      .Called("TIME");
  run.Add("--max-runtime", &flags->job.max_runtime, "End it with SIGTERM after so long, all attempts together")
      .Called("TIME");
  run.Add("--grace", &flags->grace, "Time that it has to end after SIGTERM or Ctrl-C").ShowDefault();
}

void AddNoticeOptions(const Command& run, RunFlags* flags) {
  run.Add("--on-notice", &flags->on_notice,
          "The signal that it gets when this machine will go away, and on the advice to leave it; none: no signal "
          "(default: "
          "SIGTERM, and nothing on advice)")
      .Called("SIGNAL");
  run.Add("--requeue-exit", &flags->requeue_exit, "The exit status that asks for another machine")
      .ShowDefault()
      .Number(1, 255);
}

void AddRecordOptions(const Command& run, RunFlags* flags) {
  run.Add("--journal", &flags->journal, "Add what happens to FILE, as lines of JSON").Called("FILE");
  run.Add("--log-dir", &flags->log_dir, "Keep the output of each attempt in a file of this folder, too").Called("DIR");
  run.Add("--log-size", &flags->log_size, "How much of the newest output of each attempt is kept").ShowDefault();
  run.Add(
         "--failure-file", &flags->failure_file,
         "Where the command says why it failed; else `millrace run` does (default with --channel: ROOT/output/failure)")
      .Called("FILE");
  run.Add("--on-success", &flags->on_success, "A shell command that runs once after success").Called("COMMAND");
  run.Add("--on-end", &flags->on_end,
          "A shell command that runs once after any end, told in MILLRACE_OUTCOME and MILLRACE_STATUS")
      .Called("COMMAND");
  AddMetricsPort(run, &flags->metrics_port);
  run.Add("--hook-limit", &flags->hook_limit, "Time that each of the two may take").ShowDefault();
}

void AddPrintOptions(const Command& run, RunFlags* flags) {
  run.Add("--print", &flags->print,
          "Run nothing: print the file that makes this run a job of spot instances, or of groups a job of Slurm or "
          "Kubernetes")
      .Words({"user-data", "spot-fleet", "iam-policy", "slurm-script", "jobset"});
  run.Add(
         "--ec2", &flags->ec2,
         "What the spot fleet needs besides, repeatable: image=, type=T1,T2, subnet=S1,S2, profile=ARN of the instance "
         "profile, fleet-role=ARN; and if wanted disk=GiB, security-group=, key-name=")
      .OneValueEach()
      .Called("KEY=VALUE")
      .Below("For EC2 spot instances");
}

}  // namespace

void AddRun(Command app) {
  const Command run = app.AddCommand("run", "Run a command, and start it again when it fails or is killed");
  auto flags = std::make_shared<RunFlags>();
  run.Add("command", &flags->command, "The program and its arguments, behind '--'");
  run.Add("--checkpoint", &flags->checkpoint, "URI of its checkpoints, told in MILLRACE_CHECKPOINT").Called("URI");
  AddRestartOptions(run, flags.get());
  AddNoticeOptions(run, flags.get());
  AddRecordOptions(run, flags.get());
  AddGroupOptions(run, &flags->group);
  run.Add("--code", &flags->code,
          "A git repository, cloned before the first attempt; the command runs in it. With --checkpoint, later runs "
          "take the "
          "same commit")
      .Called("URL[@REF]");
  run.Add("--code-dir", &flags->code_dir, "The folder of the clone").ShowDefault().Called("DIR");
  run.Add("--channel", &flags->job.channels,
          "Data for the command, copied to ROOT/input/data/NAME; repeatable, up to 20. After the URI may follow what "
          "SageMaker's channels have: mode=FastFile, mode=Pipe, shuffle-seed=N, content-type=TYPE and so on")
      .OneValueEach()
      .Called("NAME=URI[,KEY=VALUE]");
  run.Add("--hyperparameter", &flags->job.hyperparameters,
          "Given to a Python script as --NAME VALUE, and told in SM_HPS and SM_HP_NAME; repeatable")
      .OneValueEach()
      .Called("NAME=VALUE");
  run.AddFlag("--no-hyperparameter-args", &flags->job.no_arguments,
              "Tell hyperparameters in variables only, and not also as arguments of a Python script (--lr 0.1)");
  run.Add(
         "--job", &flags->job.request,
         "A CreateTrainingJob request of SageMaker in JSON: channels, hyperparameters, hosts, limits; other flags come "
         "before it")
      .Called("FILE");
  run.Add("--file-system", &flags->job.file_systems,
          "Where this machine has an EFS or FSx file system that the request of --job names; repeatable")
      .OneValueEach()
      .Called("ID=DIR");
  run.Add("--output", &flags->job.output,
          "At the end, save what is in ROOT/model and ROOT/output/data as model.tar.gz and output.tar.gz there")
      .Called("URI");
  run.Add(
         "--sync-checkpoints", &flags->job.checkpoints,
         "Keep what is in ROOT/checkpoints there, too: brought before the first attempt, sent while it runs and at the "
         "end")
      .Called("URI");
  run.Add("--lineage", &flags->job.lineage,
          "Add to FILE, as lines of JSON, which objects the channels hold, their order, and the epochs that were read")
      .Called("FILE");
  run.Add("--root", &flags->job.root, "The folder that programs know as /opt/ml").ShowDefault().Called("DIR");
  run.Add("--hosts", &flags->job.hosts, "The names of all hosts of the job, with commas between them [algo-1]");
  run.Add("--instance-group", &flags->job.groups,
          "Hosts of one kind, which channels may name (groups=GROUP); repeatable, up to 5")
      .OneValueEach()
      .Called("GROUP=HOST[+HOST]");
  run.Add("--current-host", &flags->job.current_host, "Which of them this is").Called("NAME");
  run.Add("--volume", &flags->volumes,
          "A volume of EBS that follows the job to this instance before the first attempt, as `millrace volume move` "
          "does it, and is detached if the job has to go on elsewhere; also ,type=, ,wait= and ,dev= as its options; "
          "repeatable")
      .OneValueEach()
      .Called("NAME=PATH[,create=SIZE]");
  AddPrintOptions(run, flags.get());
  run.Footer(kRunFooter);
  run.Run([flags, run] {
    flags->given = run.Given();
    const absl::StatusOr<int> status = RunCommandOrGroup(*flags);
    return status.ok() ? *status : Fail("run", status.status());
  });
}

}  // namespace millrace::cli
