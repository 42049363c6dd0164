#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/atomic_file.h"
#include "base/process.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/metrics_option.h"
#include "cli/run_flags.h"
#include "cli/usage.h"
#include "cli/volume_commands.h"
#include "diagnose/advise_answer.h"
#include "diagnose/prices.h"
#include "job/group_files.h"
#include "job/group_run.h"
#include "job/metrics_file.h"
#include "job/run_job.h"
#include "job/run_metrics.h"
#include "job/spot_files.h"
#include "supervisor/scheduler_grace.h"

namespace millrace::cli {

namespace {

void SayLine(const std::string& text) {
  PrintError("millrace run: {}\n", Printable(text));
}

// Takes "SIGUSR1", "USR1" or "none", which is 0.
absl::StatusOr<int> TakeSignal(std::string_view text) {
  if (text == "none") return 0;
  const std::string name(text.starts_with("SIG") ? text.substr(3) : text);
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    const char* const known = sigabbrev_np(signal);
    if (known != nullptr && name == known && signal != SIGKILL && signal != SIGSTOP) return signal;
  }
  return UsageError(
      "--on-notice: '{}' is no signal that a program can take; give SIGTERM, SIGUSR1 or none, for instance", text);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(fmt::format("{}: there is no such file, or it cannot be read", path));
  return std::move(text).str();
}

absl::StatusOr<RestartOptions> TakeRestart(const RunFlags& flags) {
  RestartOptions restart = flags.run.supervisor.restart;
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
  restart.requeue_exit = static_cast<int>(flags.requeue_exit);
  return restart;
}

absl::StatusOr<AttemptLimits> TakeLimits(const RunFlags& flags) {
  AttemptLimits limits;
  ASSIGN_OR_RETURN(limits.grace, TakeMilliseconds("--grace", flags.grace));
  if (const auto scheduler = GraceOfScheduler(EnvironmentValue); scheduler && !flags.Has("--grace")) {
    limits.grace = scheduler->grace;
    SayLine(scheduler->why);
  }
  if (flags.hang_after) {
    ASSIGN_OR_RETURN(limits.hang_after, TakeMilliseconds("--hang-after", *flags.hang_after));
    if (limits.hang_after->count() == 0) return UsageError("--hang-after must be more than 0");
  }
  if (flags.on_notice) {
    ASSIGN_OR_RETURN(limits.notice_signal, TakeSignal(*flags.on_notice));
  }
  return limits;
}

absl::StatusOr<RunOptions> TakeRun(const RunFlags& flags) {
  RunOptions options = flags.run;
  SupervisorOptions& supervisor = options.supervisor;
  if (!supervisor.checkpoint.empty()) RETURN_IF_ERROR(CheckUri(supervisor.checkpoint));
  ASSIGN_OR_RETURN(supervisor.restart, TakeRestart(flags));
  ASSIGN_OR_RETURN(supervisor.limits, TakeLimits(flags));
  ASSIGN_OR_RETURN(supervisor.log_bytes, TakeSize("--log-size", flags.log_size));
  if (supervisor.log_bytes < 1024) return UsageError("--log-size must be 1 KiB at least");
  ASSIGN_OR_RETURN(supervisor.hook_limit, TakeMilliseconds("--hook-limit", flags.hook_limit));
  options.retries_given = flags.retries.has_value();
  options.expects_notices = flags.on_notice.has_value();
  if (flags.max_runtime) {
    ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, TakeDuration("--max-runtime", *flags.max_runtime));
    options.job.max_seconds = static_cast<uint64_t>(std::chrono::ceil<std::chrono::seconds>(time).count());
  }
  return options;
}

ShowProgress OneLine(const std::string& label) {
  const auto line = std::make_shared<ProgressLine>(label, ProgressLine::Unit::kBytes);
  return [line](uint64_t done, uint64_t total) { line->Update(done, total); };
}

/// "1,000 steps in 1 h 2 min, 3.7 s each; $1.25, $1.25 for 1,000 steps"; "" if neither steps nor the price are known.
std::string SummaryText(const RunJournal::Fields& fields) {
  std::map<std::string_view, double> numbers;
  for (const auto& [name, value] : fields) {
    if (const auto* real = std::get_if<double>(&value)) numbers[name] = *real;
    if (const auto* whole = std::get_if<int64_t>(&value)) numbers[name] = static_cast<double>(*whole);
  }
  const bool steps = numbers.contains("steps");
  const bool priced = numbers.contains("dollars");
  if (!steps && !priced) return "";
  std::string text;
  if (steps) text += fmt::format("{} steps in ", ShortNumber(numbers["steps"]));
  text += TimeText(numbers["seconds"]);
  if (steps) text += fmt::format(", {} each", TimeText(numbers["step_seconds"]));
  if (priced) text += fmt::format("; {}", DollarText(numbers["dollars"]));
  if (priced && steps) text += fmt::format(", {} for 1,000 steps", DollarText(numbers["dollars_per_1000_steps"]));
  return text;
}

absl::Status TakePrice(const RunFlags& flags, SupervisorOptions* options) {
  if (!(flags.price >= 0 && flags.price < 1e6)) return UsageError("--price takes dollars an hour, 0 or more");
  options->dollars_per_hour = flags.price;
  if (flags.machine.empty()) return absl::OkStatus();
  if (flags.price > 0) return UsageError("--price and --machine both say the price of this machine");
  ASSIGN_OR_RETURN(const MachinePrice machine, AsUsage(BuiltInPrices().FindMachine(flags.machine)));
  if (machine.dollars_per_hour <= 0) return UsageError("the price of {} is not known: give --price", flags.machine);
  options->dollars_per_hour = machine.dollars_per_hour;
  return absl::OkStatus();
}

absl::StatusOr<int> RunCommand(RunFlags flags) {
  for (const std::string& text : flags.volumes) {
    ASSIGN_OR_RETURN(flags.run.volumes.emplace_back(), ParseVolumeOption(text));
  }
  if (!flags.print.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::string> kept, KeptWords(flags));
    ASSIGN_OR_RETURN(const std::string file,
                     SpotFile(flags.run, {.kind = flags.print, .ec2 = flags.ec2, .kept = std::move(kept)}));
    RETURN_IF_ERROR(WriteStdout(file));
    return 0;
  }
  ASSIGN_OR_RETURN(RunOptions options, TakeRun(flags));
  RETURN_IF_ERROR(TakePrice(flags, &options.supervisor));
  ASSIGN_OR_RETURN(const std::optional<MetricsAddress> metrics_address, TakeMetricsPort(flags.metrics_port));
  RunMetrics counts;
  MetricsFile file(flags.metrics_file, counts, SayLine);
  std::unique_ptr<MetricsServer> metrics;
  options.supervisor.on_event = [&](std::string_view event, const RunJournal::Fields& fields) {
    counts.OnEvent(event, fields);
    if (const std::string summary = event == "end" ? SummaryText(fields) : ""; !summary.empty()) SayLine(summary);
    file.Write();
  };
  options.supervisor.begin = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(metrics, ServeMetrics(metrics_address, [&counts](MetricsText* text) {
                       CollectProcess(text);
                       counts.Collect(text);
                     }));
    return absl::OkStatus();
  };
  return RunJob(options, {.say = SayLine, .progress = OneLine});
}

absl::StatusOr<int> RunGroups(const RunFlags& flags) {
  if (!flags.run.supervisor.command.empty()) {
    return UsageError("with --group there is no command behind '--'; each group has its own");
  }
  const GroupFlags& group = flags.group;
  if (!flags.print.empty() && !flags.PrintsGroups()) {
    return UsageError("--print {} is for one command, not for --group", flags.print);
  }
  ASSIGN_OR_RETURN(std::vector<JobGroup> groups, AsUsage(TakeGroups(group.groups, group.sizes)));
  if (flags.PrintsGroups()) {
    ASSIGN_OR_RETURN(std::vector<std::string> kept, KeptWords(flags));
    ASSIGN_OR_RETURN(const std::chrono::milliseconds grace, TakeMilliseconds("--grace", flags.grace));
    // Without it, a pod would count the time that Kubernetes gives to others as its own.
    if (flags.print == "jobset" && !flags.Has("--grace")) kept.insert(kept.end(), {"--grace", flags.grace});
    ASSIGN_OR_RETURN(const std::string text,
                     AsUsage(GroupFile({.kind = flags.print,
                                        .name = group.name,
                                        .image = group.image,
                                        .port = static_cast<uint16_t>(group.port),
                                        .groups = std::move(groups),
                                        .kept = std::move(kept),
                                        .grace = std::chrono::ceil<std::chrono::seconds>(grace),
                                        .requeue_exit = static_cast<int>(flags.requeue_exit)})));
    RETURN_IF_ERROR(WriteStdout(text));
    return 0;
  }
  GroupOptions options{.groups = std::move(groups),
                       .role = group.role,
                       .port = static_cast<uint16_t>(group.port),
                       .token_file = group.token_file,
                       .requeue_exit = static_cast<int>(flags.requeue_exit)};
  ASSIGN_OR_RETURN(options.grace, TakeMilliseconds("--group-grace", group.grace));
  ASSIGN_OR_RETURN(options.lost_after, TakeMilliseconds("--group-lost", group.lost));
  const auto supervise = [&flags](const std::vector<std::string>& command, bool serves) {
    RunFlags own = flags;
    own.run.supervisor.command = command;
    own.run.supervisor.restart.serves = serves;
    return ExitStatus("run", RunCommand(own));
  };
  return RunInGroup(options, supervise, SayLine);
}

absl::StatusOr<int> RunCommandOrGroup(const RunFlags& flags) {
  if (!flags.group.groups.empty()) return RunGroups(flags);
  if (flags.PrintsGroups()) return UsageError("--print {} is for groups; name them with --group", flags.print);
  if (flags.run.supervisor.command.empty()) return UsageError("name the command, behind '--'");
  return RunCommand(flags);
}

constexpr const char* kRunFooter =
    R"(The command finds MILLRACE_ATTEMPT (1 for the first), MILLRACE_ATTEMPTS and MILLRACE_CHECKPOINT in its environment;
millrace.Checkpoints() in a Python program uses the last one. SIGTERM, SIGINT and SIGHUP are passed on to the command,
which is then not started again; its process group is killed after --grace. Processes that a failed attempt leaves are killed.

On EC2 the metadata service (IMDSv2) is asked every two seconds whether the instance will be interrupted, stopped for
maintenance, or ended by its Auto Scaling group; SIGUSR1 or SIGUSR2 to `millrace run` says the same. The command then gets
a signal (--on-notice) and has until five seconds before the announced time to save and to end; if nothing was announced,
--grace. A Python program that calls millrace.notice() gets no signal, unless --on-notice asks for one. It is not started
again here: the exit status is then 75 (--requeue-exit), on which a scheduler can start the job on another machine.

With --channel or --hyperparameter the command finds the files and variables that SageMaker gives to a training program. The
data of each channel are in /opt/ml/input/data/NAME, and the configuration files in /opt/ml/input/config. The variables are
SM_CHANNEL_NAME, SM_HPS, SM_MODEL_DIR and so on. The data are copied before the first attempt (File mode); a second run copies files that are missing or have
changed. With mode=FastFile nothing is copied: the folder is a file system that reads only the bytes that the command reads. With mode=Pipe
the command reads each epoch from a pipe, NAME_0, NAME_1 and so on (docs/channels.md).

With --group each host of a job runs the command of its own group, and all hosts end together (docs/groups.md).

The exit status is that of the last attempt: 128 + N if signal N ended it, 127 if there is no such program. It is 124 if the
attempt hung and then exited with 0, and 75 if the job has to continue elsewhere.

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
  run.AddShown("--delay", &flags->delay,
               "Time before the first restart; doubles with each failure in a row, to a minute");
  run.AddShown("--fast-failures", &flags->run.supervisor.restart.fast_failures,
               "This many failures in a row, each within 10 seconds, end the job; 0: no limit")
      .Number(0, 1'000'000);
  run.Add("--on-exit CONDITION[,CONDITION]:ACTION", &flags->on_exit,
          "End the job (exit) or start it again (retry) after some exits: code=2:exit, code=64..78:exit, "
          "reason=Hang*:retry. Repeatable; the first that matches counts");
  run.Add("--rules FILE", &flags->rules,
          "The same, as the retryStrategy of an AWS Batch job definition in JSON; its attempts "
          "count unless there is --retries");
  run.Add("--hang-after TIME", &flags->hang_after,
          "End and restart it if it prints nothing, and does not call millrace.heartbeat(), for this time (10m, 90s)");
  run.Add("--max-runtime TIME", &flags->max_runtime, "End it with SIGTERM after this time, all attempts together");
  run.AddShown("--grace", &flags->grace, "Time that it has to end after SIGTERM or Ctrl-C");
}

void AddNoticeOptions(const Command& run, RunFlags* flags) {
  run.Add("--on-notice SIGNAL", &flags->on_notice,
          "The signal that it gets when this machine will go away, and on the advice to leave it; none: no signal "
          "(default: SIGTERM, and nothing on advice)");
  run.AddShown("--requeue-exit", &flags->requeue_exit, "The exit status that asks for another machine").Number(1, 255);
}

void AddRecordOptions(const Command& run, RunFlags* flags) {
  run.Add("--journal FILE", &flags->run.journal, "Append the events of the run to FILE, as lines of JSON");
  run.Add("--log-dir DIR", &flags->run.supervisor.log_folder,
          "Keep the output of each attempt in a file of this folder, too");
  run.AddShown("--log-size", &flags->log_size, "How much of the newest output of each attempt is kept");
  run.Add(
      "--failure-file FILE", &flags->run.supervisor.failure_file,
      "Where the command says why it failed; else `millrace run` does (default with --channel: ROOT/output/failure)");
  run.Add("--on-success COMMAND", &flags->run.supervisor.on_success, "A shell command that runs once after success");
  run.Add("--on-end COMMAND", &flags->run.supervisor.on_end,
          "A shell command that runs once after any end, with MILLRACE_OUTCOME and MILLRACE_STATUS in its environment");
  AddMetricsPort(run, &flags->metrics_port);
  run.Add("--metrics-file FILE", &flags->metrics_file,
          "Write these metrics to FILE, too, at each event and at the end of the job, for the textfile collector of "
          "Prometheus's node exporter: FILE ends in .prom");
  run.Add("--price DOLLARS", &flags->price,
          "Dollars an hour of this machine: the end of the job says the cost, and that of 1,000 steps if the program "
          "tells them (millrace.heartbeat(step))");
  run.Add("--machine NAME", &flags->machine,
          "The same by its name in the price list of `millrace advise`, such as g5.xlarge");
  run.AddShown("--hook-limit", &flags->hook_limit, "Time that each of the two may take");
}

void AddGroupOptions(const Command& run, GroupFlags* flags) {
  run.Add(
      "--group NAME=COMMAND", &flags->groups,
      "A group of hosts and its shell command, in place of the command behind '--'; repeatable. The last one is the "
      "job, such as the trainers; the others serve it");
  run.Add("--role NAME", &flags->role.role, "The group of this host, unless SageMaker or Slurm says it");
  run.Add("--coordinator HOST:PORT", &flags->role.coordinator,
          "Where the first host of the last group is reached; needed with --role");
  run.Add("--main-hosts", &flags->role.main_hosts, "With --role: how many hosts the last group has [1]")
      .Number(1, 1'000'000);
  run.Add("--host-index", &flags->role.host_index,
          "With --role: which host of its group this is, from 0 on [JOB_COMPLETION_INDEX, else 0]")
      .Number(0, 1'000'000);
  run.AddShown("--group-port", &flags->port, "Where the first host of the last group listens for the others")
      .Number(1, 65'535);
  run.Add("--group-token-file FILE", &flags->token_file, "A file with a secret that all hosts have");
  run.AddShown("--group-grace", &flags->grace, "Time that commands have to end after the job has ended elsewhere");
  run.AddShown("--group-lost TIME", &flags->lost,
               "A host that is silent for this time is lost, and so is the coordinator");
  run.Add("--group-size NAME=HOSTS", &flags->sizes,
          "With --print slurm-script or jobset: how many hosts a group has; repeatable [1]");
  run.AddShown("--job-name", &flags->name, "With --print slurm-script or jobset: the name of the job");
  run.Add("--image IMAGE", &flags->image, "With --print jobset: the container image");
}

void AddPrintOptions(const Command& run, RunFlags* flags) {
  run.Add("--print", &flags->print,
          "Run nothing: print the file that makes this run a job of spot instances, or of groups a job of Slurm or "
          "Kubernetes")
      .Words({"user-data", "spot-fleet", "iam-policy", "slurm-script", "jobset"});
  run.AddFlag("--print-secrets", &flags->print_secrets, "With --print: also print values that look like secrets");
  run.Under("For EC2 spot instances")
      .Add("--ec2 KEY=VALUE", &flags->ec2,
           "Settings of the spot fleet, repeatable: image=, type=T1,T2, subnet=S1,S2, profile=ARN of the instance "
           "profile, fleet-role=ARN. Optional: disk=GiB, security-group=, key-name=");
}

}  // namespace

void AddRun(Command app) {
  const Command run = app.AddCommand("run", "Run a command, and start it again when it fails or is killed");
  auto flags = std::make_shared<RunFlags>();
  run.Add("command", &flags->run.supervisor.command, "The program and its arguments, behind '--'");
  run.Add("--checkpoint URI", &flags->run.supervisor.checkpoint,
          "URI of its checkpoints, which the command finds in MILLRACE_CHECKPOINT");
  AddRestartOptions(run, flags.get());
  AddNoticeOptions(run, flags.get());
  AddRecordOptions(run, flags.get());
  AddGroupOptions(run, &flags->group);
  run.Add("--code URL[@REF]", &flags->run.code.source,
          "A git repository, cloned before the first attempt; the command runs in it. With --checkpoint, later runs "
          "take the same commit");
  run.AddShown("--code-dir DIR", &flags->run.code.folder, "The folder of the clone");
  run.Add("--channel NAME=URI[,KEY=VALUE]", &flags->run.job.channels,
          "Data for the command, copied to ROOT/input/data/NAME; repeatable, up to 20. Settings of SageMaker's "
          "channels may follow the URI: mode=FastFile, mode=Pipe, shuffle-seed=N, content-type=TYPE and so on");
  run.Add("--hyperparameter NAME=VALUE", &flags->run.job.hyperparameters,
          "Given to a Python script as --NAME VALUE, and in the variables SM_HPS and SM_HP_NAME; repeatable");
  run.Add("--hyperparameter-file NAME=FILE", &flags->run.job.hyperparameter_files,
          "A hyperparameter whose value is the text of FILE, without a newline at its end, for secrets that are files. "
          "Messages and the journal do not show it; repeatable");
  run.Add("--hyperparameters FILE", &flags->run.job.hyperparameters_file,
          "A JSON object of hyperparameters, {\"lr\": 0.1}; those of the options above come before it");
  run.AddFlag("--no-hyperparameter-args", &flags->run.job.no_arguments,
              "Give hyperparameters in variables only, and not also as arguments of a Python script (--lr 0.1)");
  run.Add(
      "--job FILE", &flags->run.job.request,
      "A CreateTrainingJob request of SageMaker in JSON: channels, hyperparameters, hosts, limits; other flags come "
      "before it");
  run.Add("--file-system ID=DIR", &flags->run.job.file_systems,
          "Where this machine has an EFS or FSx file system that the request of --job names; repeatable");
  run.Add("--output URI", &flags->run.job.output,
          "At the end, save ROOT/model and ROOT/output/data as model.tar.gz and output.tar.gz there");
  run.Add("--sync-checkpoints URI", &flags->run.job.checkpoints,
          "Keep ROOT/checkpoints there, too: copied to this machine before the first attempt, and to the URI while it "
          "runs and at the end");
  run.Add("--lineage FILE", &flags->run.job.lineage,
          "Add to FILE, as lines of JSON, which objects the channels hold, their order, the epochs that were read, the "
          "commit of --code, and the objects that --output has saved");
  run.AddShown("--root DIR", &flags->run.job.root, "The folder that programs know as /opt/ml");
  run.Add("--hosts", &flags->run.job.hosts, "The names of all hosts of the job, with commas between them [algo-1]");
  run.Add("--instance-group GROUP=HOST[+HOST]", &flags->run.job.groups,
          "Hosts of one kind, which channels may name (groups=GROUP); repeatable, up to 5");
  run.Add("--current-host NAME", &flags->run.job.current_host, "Which of them this is");
  run.Add("--volume NAME=PATH[,create=SIZE]", &flags->volumes,
          "A volume of EBS that follows the job to this instance before the first attempt, as `millrace volume move` "
          "does it. It is detached if the job has to continue elsewhere. ,type=, ,wait= and ,dev= are the options of "
          "that command. Repeatable");
  AddPrintOptions(run, flags.get());
  run.Footer(kRunFooter);
  run.Run([flags, run] {
    flags->given = run.Given();
    return ExitStatus("run", RunCommandOrGroup(*flags));
  });
}

}  // namespace millrace::cli
