#include "cli/run_group.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/process.h"
#include "channel/job_root.h"
#include "cli/console.h"
#include "cli/group_link.h"
#include "cli/run_manifest.h"
#include "cli/usage.h"
#include "service/worker_token.h"
#include "supervisor/guarded_command.h"
#include "supervisor/restart_policy.h"
#include "supervisor/run_journal.h"

namespace millrace::cli {

namespace {

using GroupClock = std::chrono::steady_clock;

// How long the coordinator waits for hosts to hear how the job has ended.
constexpr std::chrono::seconds kHearWithin{5};
// After the command was killed: until its supervisor is killed, too.
constexpr std::chrono::seconds kSupervisorEnds{2};
// The exit status of a process that signal N has ended is this and N.
constexpr int kSignalled = 128;

absl::StatusOr<std::optional<std::string>> ReadResources() {
  const char* named = std::getenv("SM_INPUT_CONFIG_DIR");
  const std::string folder = named == nullptr || *named == '\0' ? "/opt/ml/input/config" : named;
  if (JobRoot::IsLeftBehind(folder)) return std::nullopt;
  std::ifstream file(folder + "/resourceconfig.json", std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<std::string> EnvironmentVariable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

/// What happens on this host, from the start of its command until the job has ended.
class GroupRun {
 public:
  struct Options {
    std::chrono::milliseconds grace{0};
    std::optional<int> may_leave_with;
    bool is_job = false;  // the success of this host is that of the job
    std::function<void(const std::string&)> say;
  };
  GroupRun(GuardedCommand& command, GroupMember& member, const GroupCoordinator* coordinator, Options options)
      : command_(command), member_(member), coordinator_(coordinator), options_(std::move(options)) {}

  int Wait() {
    command_.Begin();
    for (;;) {
      const std::optional<int> signal = GuardedCommand::WaitForSignal();
      if (!status_) OnCommand();
      if (signal && OnSignal(*signal)) return EndStatus();
      // A host that serves, and goes away: the others go on.
      if (status_ && !heard_ && status_ == options_.may_leave_with) return *status_;
      if (const std::optional<JobVerdict> verdict = member_.verdict()) {
        if (OnVerdict(*verdict)) return verdict->status;
      } else if (leaves_ && GroupClock::now() - *leaves_ >= kHearWithin) {
        return EndStatus();
      }
    }
  }

 private:
  void OnCommand() {
    status_ = command_.Ended();
    if (!status_) return;
    // Asked to end, it may have saved, and ended with 0: the job is not done.
    const bool done = *status_ == 0 && options_.is_job;
    if (stop_ != 0 && !heard_ && !done && *status_ != options_.may_leave_with)
      return Leave(*status_ == 0 ? kSignalled + stop_ : *status_);
    if (*status_ != options_.may_leave_with)
      member_.Report(*status_ == 0 ? HostState::kSucceeded : HostState::kFailed, *status_);
    if (!member_.verdict()) {
      options_.say(
          fmt::format("the command of this host has ended with status {}; the job has not ended yet", *status_));
    }
  }

  // True: there is nothing left to do.
  bool OnSignal(int signal) {
    const bool notice = signal == SIGUSR1 || signal == SIGUSR2;
    const bool again = leaves_ || heard_;
    if (!notice) stop_ = signal;
    if (!status_) {
      command_.Signal(signal);
      return false;
    }
    if (notice) return false;  // there is nothing to save
    if (!again) Leave(kSignalled + signal);
    return again;
  }

  // The others hear that this host ends before the job has.
  void Leave(int status) {
    leaves_ = GroupClock::now();
    leaves_with_ = status;
    options_.say(fmt::format("{} came; this host leaves the job, which ends", SignalName(stop_)));
    member_.Leave(HostState::kFailed, status);
  }

  int EndStatus() const {
    const std::optional<JobVerdict> verdict = member_.verdict();
    return verdict ? verdict->status : leaves_with_;
  }

  // True: there is nothing left to do.
  bool OnVerdict(const JobVerdict& verdict) {
    const GroupClock::time_point now = GroupClock::now();
    if (!heard_) {
      heard_ = now;
      options_.say(fmt::format("the job ends with status {}: {}", verdict.status, verdict.why));
      if (!status_) command_.Signal(SIGTERM);
    }
    if (!status_ && !killed_ && now - *heard_ >= options_.grace) {
      killed_ = now;
      command_.Signal(SIGTERM);  // the second one kills
    }
    if (!status_ && !(killed_ && now - *killed_ >= kSupervisorEnds)) return false;
    return coordinator_ == nullptr || coordinator_->AllKnow() || now - *heard_ >= kHearWithin;
  }

  GuardedCommand& command_;
  GroupMember& member_;
  const GroupCoordinator* const coordinator_;
  const Options options_;
  std::optional<int> status_;                     // of the command
  int stop_ = 0;                                  // the signal that asks this host to end; 0: none
  std::optional<GroupClock::time_point> leaves_;  // since then, before the job has ended
  int leaves_with_ = 0;
  std::optional<GroupClock::time_point> heard_;  // how the job ends
  std::optional<GroupClock::time_point> killed_;
};

// In the process of the command, which was made when they were held: preparing it may take long, and ends by them.
void TakeStopSignals() {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&stops, signal);
  pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
}

bool IsLoopbackHost(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

void AddGroupOptions(const Command& run, GroupFlags* flags) {
  run.Add(
         "--group", &flags->groups,
         "A group of hosts and its shell command, in place of the command behind '--'; repeatable. The last one is the "
         "job, such as the trainers; the others serve it")
      .OneValueEach()
      .Called("NAME=COMMAND");
  run.Add("--role", &flags->role.role, "The group of this host, unless SageMaker or Slurm says it").Called("NAME");
  run.Add("--coordinator", &flags->role.coordinator,
          "Where the first host of the last group is reached; needed with --role")
      .Called("HOST:PORT");
  run.Add("--main-hosts", &flags->role.main_hosts, "With --role: how many hosts the last group has [1]")
      .Number(1, 1'000'000);
  run.Add("--host-index", &flags->role.host_index,
          "With --role: which host of its group this is, from 0 on [JOB_COMPLETION_INDEX, else 0]")
      .Number(0, 1'000'000);
  run.Add("--group-port", &flags->port, "Where the first host of the last group listens for the others")
      .ShowDefault()
      .Number(1, 65'535);
  run.Add("--group-token-file", &flags->token_file, "A file with a secret that all hosts have").Called("FILE");
  run.Add("--group-grace", &flags->grace, "Time that commands have to end after the job has ended elsewhere")
      .ShowDefault();
  run.Add("--group-lost", &flags->lost, "A host that is silent for so long is lost, and so is the coordinator")
      .ShowDefault()
      .Called("TIME");
  run.Add("--group-size", &flags->sizes,
          "With --print slurm-script or jobset: how many hosts a group has; repeatable [1]")
      .OneValueEach()
      .Called("NAME=HOSTS");
  run.Add("--job-name", &flags->name, "With --print slurm-script or jobset: the name of the job").ShowDefault();
  run.Add("--image", &flags->image, "With --print jobset: the container image").Called("IMAGE");
}

absl::StatusOr<int> RunInGroup(const GroupFlags& flags, int requeue_exit,
                               const std::function<int(const std::vector<std::string>& command)>& supervise,
                               const std::function<void(const std::string&)>& say) {
  ASSIGN_OR_RETURN(const std::vector<JobGroup> groups, AsUsage(TakeGroups(flags.groups, flags.sizes)));
  std::vector<std::string> names;
  for (const JobGroup& group : groups) names.push_back(group.name);
  ASSIGN_OR_RETURN(const std::optional<std::string> resources, ReadResources());
  ASSIGN_OR_RETURN(const GroupRole role, AsUsage(FindRole(flags.role, names, resources, EnvironmentVariable)));
  ASSIGN_OR_RETURN(const std::string token, ReadWorkerToken(flags.token_file));
  if (token.empty() && !IsLoopbackHost(role.coordinator)) {
    return AsUsage(absl::InvalidArgumentError(
        "whoever reaches the coordinator could end the job; give all hosts a secret (--group-token-file)"));
  }
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds grace, TakeDuration("--group-grace", flags.grace));
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds lost, TakeDuration("--group-lost", flags.lost));
  const auto lost_after = std::chrono::ceil<std::chrono::milliseconds>(lost);
  const uint16_t port = role.port.value_or(static_cast<uint16_t>(flags.port));
  const bool is_main = role.group == names.back();
  const auto own =
      std::find_if(groups.begin(), groups.end(), [&](const JobGroup& each) { return each.name == role.group; });
  const std::vector<std::string> command = {"sh", "-c", own->command};
  ASSIGN_OR_RETURN(const std::unique_ptr<GuardedCommand> guarded, GuardedCommand::Prepare([&] {
                     TakeStopSignals();
                     return supervise(command);
                   }));
  EventLoops loops(1);
  std::unique_ptr<GroupCoordinator> coordinator;
  if (role.coordinates) {
    GroupBoard::Options options{.main = names.back(),
                                .main_hosts = role.main_hosts,
                                .groups = std::set<std::string>(names.begin(), names.end()),
                                .lost_status = requeue_exit,
                                .lost_after = lost_after};
    const std::string listen = IsLoopbackHost(role.coordinator) ? "127.0.0.1" : "0.0.0.0";
    ASSIGN_OR_RETURN(coordinator, GroupCoordinator::Start(loops, listen, port, token, std::move(options), say));
  }
  say(fmt::format("this is a host of group {}; {} coordinates", role.group,
                  role.coordinates ? "it" : fmt::format("{}:{}", role.coordinator, port)));
  GroupMember member(loops, {.coordinator = {.host = role.coordinates ? "127.0.0.1" : role.coordinator, .port = port},
                             .token = token,
                             .host = fmt::format("{}:{}", HostName(), getpid()),
                             .group = role.group,
                             .is_main = is_main,
                             .lost_status = requeue_exit,
                             .lost_after = lost_after,
                             .say = say,
                             .wake = GuardedCommand::Wake});
  return GroupRun(*guarded, member, coordinator.get(),
                  {.grace = std::chrono::ceil<std::chrono::milliseconds>(grace),
                   .may_leave_with = is_main ? std::nullopt : std::optional(requeue_exit),
                   .is_job = is_main && role.main_hosts == 1,
                   .say = say})
      .Wait();
}

}  // namespace millrace::cli
