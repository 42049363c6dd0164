#include "supervisor/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/life_sign.h"
#include "base/process.h"
#include "supervisor/attempt_output.h"
#include "supervisor/failure_file.h"
#include "supervisor/job_commands.h"
#include "supervisor/job_process.h"
#include "supervisor/memory_kills.h"
#include "supervisor/notice_queue.h"
#include "supervisor/notice_watcher.h"
#include "supervisor/run_folder.h"
#include "supervisor/shown_command.h"
#include "supervisor/stacks.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kLeastTick{10};
constexpr Milliseconds kMostTick{1'000};
constexpr const char* kUnkillable = "processes of this attempt cannot be killed; they hang within the kernel";

Milliseconds Until(Clock::time_point time) {
  return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(time - Clock::now()));
}

double InSeconds(Milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

class JobSupervisor {
 public:
  explicit JobSupervisor(const SupervisorOptions& options) : options_(options), policy_(options.restart) {}

  absl::StatusOr<int> Run();
  void EndBeforeBegin(const std::string& why);

 private:
  using Fields = RunJournal::Fields;

  absl::StatusOr<int> RunAttempts();
  absl::StatusOr<AttemptEnd> RunOnce();
  absl::StatusOr<std::unique_ptr<AttemptOutput>> MakeOutput() const;
  AttemptEnd StartAndWait(AttemptOutput* output);
  AttemptEnd WaitFor(JobProcess& job, AttemptOutput* output, AttemptWatch& watch);
  void EndLeft(const AttemptEnd& end, Milliseconds limit, JobProcess& job);
  void OnEvent(SupervisorEvent event, int signal, AttemptWatch& watch, JobProcess& job);
  std::optional<absl::Time> EndOfJob() const;
  void Stop(int signal, AttemptWatch& watch, JobProcess& job);
  void TakeNotice(const Notice& notice, AttemptWatch& watch, JobProcess& job);
  void TakeIdleNotice(const Notice& notice);
  void Announce(const Notice& notice, std::optional<Milliseconds> left, std::optional<Milliseconds> end);
  void TellProgram(const Notice& notice, std::optional<Milliseconds> end);
  void Carry(const AttemptWatch::Action& action, JobProcess& job);
  void Tell(const AttemptEnd& end, const RestartPolicy::Decision& decision);
  bool Pause(Milliseconds delay);
  void WriteStart();
  void TakeSteps();
  void WriteEnd(const RestartPolicy::Decision& decision);
  void End(const std::string& failure, const RestartPolicy::Decision& decision, bool completes);
  void RunHook(const char* name, const std::string& command, const RestartPolicy::Decision& decision);

  void Say(const std::string& text) const { options_.say(text); }
  std::string AttemptText(uint64_t attempt) const;
  void Write(std::string_view event, const Fields& fields) {
    if (options_.on_event) options_.on_event(event, fields);
    if (options_.journal == nullptr) return;
    if (const absl::Status wrote = options_.journal->Write(event, fields); !wrote.ok())
      Say(std::string(ToStd(wrote.message())));
  }

  const SupervisorOptions& options_;
  SupervisorProcess process_;
  RestartPolicy policy_;
  NoticeQueue queue_;
  std::unique_ptr<NoticeWatcher> watcher_;
  std::unique_ptr<RunFolder> folder_;  // nullptr: the one of the supervisor above counts
  uint64_t attempt_ = 0;
  bool started_ = false;     // the attempt was; else why not was said
  bool knows_why_ = true;    // else the caller does, who says it in the failure file
  bool leaves_ = false;      // a final notice came
  std::string log_path_;     // of this attempt; "": there is no log
  std::string output_tail_;  // of this attempt
  const Clock::time_point begun_ = options_.begun.value_or(Clock::now());
  std::optional<std::pair<uint64_t, uint64_t>> steps_;  // the first and the last one that attempts have told
};

absl::StatusOr<int> JobSupervisor::Run() {
  WriteStart();
  if (!options_.failure_file.empty()) ClearFailure(options_.failure_file);
  absl::StatusOr<int> status = RunAttempts();
  if (!status.ok()) {
    // The hook may be what stops a machine that costs money.
    const std::string why(ToStd(status.status().message()));
    End(why, {.why = why, .outcome = JobOutcome::kFailure, .status = 1}, /*completes=*/false);
  }
  return status;
}

absl::StatusOr<int> JobSupervisor::RunAttempts() {
  if (options_.begin) RETURN_IF_ERROR(options_.begin());
  if (!options_.inner) {
    ASSIGN_OR_RETURN(folder_, RunFolder::Make());
  }
  if (options_.metadata_service) {
    watcher_ = std::make_unique<NoticeWatcher>(*options_.metadata_service,
                                               NoticeWatcher::Callbacks{[this](const Notice& notice) {
                                                                          queue_.Add(notice);
                                                                          SupervisorProcess::Wake();
                                                                        },
                                                                        [this](const std::string& problem) {
                                                                          queue_.AddProblem(problem);
                                                                          SupervisorProcess::Wake();
                                                                        }});
  }
  for (attempt_ = 1;; ++attempt_) {
    ASSIGN_OR_RETURN(const AttemptEnd end, RunOnce());
    RestartPolicy::Decision decision = policy_.OnEnd(end);
    Tell(end, decision);
    if (decision.restart && !Pause(decision.delay)) {
      decision.restart = false;
      decision.outcome = leaves_ ? JobOutcome::kElsewhere : JobOutcome::kStopped;
      if (leaves_) decision.status = options_.restart.requeue_exit;
    }
    if (decision.restart) continue;
    End(fmt::format("attempt {} {} after {}; {}", attempt_, EndText(end), SecondsText(end.ran), decision.why), decision,
        /*completes=*/true);
    return decision.status;
  }
}

void JobSupervisor::WriteStart() {
  Write("start", {{"pid", int64_t{getpid()}},
                  {"command", ShownCommand(options_.command, options_.secrets)},
                  {"attempts", static_cast<int64_t>(options_.restart.retries + 1)},
                  {"checkpoint", options_.checkpoint},
                  {"code", options_.code}});
}

void JobSupervisor::EndBeforeBegin(const std::string& why) {
  WriteStart();
  if (!options_.failure_file.empty()) ClearFailure(options_.failure_file);
  End(why, {.why = why, .outcome = JobOutcome::kFailure, .status = 1}, /*completes=*/true);
}

absl::StatusOr<AttemptEnd> JobSupervisor::RunOnce() {
  if (options_.before_attempt) {
    const absl::Status ready = options_.before_attempt(attempt_);
    knows_why_ = ready.ok();
    RETURN_IF_ERROR(ready);
  }
  if (!options_.failure_file.empty()) ClearFailure(options_.failure_file);
  if (folder_) RETURN_IF_ERROR(folder_->Begin());
  if (!options_.log_folder.empty()) {
    log_path_ =
        fmt::format("{}/attempt-{}-{}-{}.log", options_.log_folder,
                    absl::FormatTime("%Y%m%dT%H%M%E3SZ", absl::Now(), absl::UTCTimeZone()), HostName(), attempt_);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<AttemptOutput> output, MakeOutput());
  const Clock::time_point start = Clock::now();
  const MemoryKills kills;
  AttemptEnd end = StartAndWait(output.get());
  end.ran = std::chrono::duration_cast<Milliseconds>(Clock::now() - start);
  TakeSteps();
  if (output) {
    if (const absl::Status copied = output->Finish(); !copied.ok()) Say(std::string(ToStd(copied.message())));
    output_tail_ = output->tail();
  }
  end.out_of_memory = end.status != 0 && kills.Happened(end.signal == SIGKILL);
  if (!started_) return end;
  Fields fields{{"attempt", static_cast<int64_t>(attempt_)},
                {"status", int64_t{end.status}},
                {"reason", ReasonText(end)},
                {"seconds", InSeconds(end.ran)}};
  if (end.signal != 0) fields.emplace_back("signal", SignalName(end.signal));
  for (const auto& [name, is] : {std::pair{"stopped", end.stopped}, {"hang", end.hang}, {"leaves", end.leaves}})
    if (is) fields.emplace_back(name, true);
  if (end.status != 0 && !options_.failure_file.empty())
    fields.emplace_back("failure", ReadFailure(options_.failure_file));
  Write("attempt-end", fields);
  return end;
}

// A command that serves may have more attempts than its retries.
std::string JobSupervisor::AttemptText(uint64_t attempt) const {
  const uint64_t attempts = options_.restart.retries + 1;
  return attempt > attempts ? fmt::format("attempt {}", attempt) : fmt::format("attempt {} of {}", attempt, attempts);
}

// nullptr: the command writes to what this program writes to.
absl::StatusOr<std::unique_ptr<AttemptOutput>> JobSupervisor::MakeOutput() const {
  if (options_.log_folder.empty() && !options_.limits.hang_after) return nullptr;
  if (log_path_.empty()) return AttemptOutput::Make(nullptr);
  absl::StatusOr<std::unique_ptr<BoundedLog>> log = BoundedLog::Make(log_path_, options_.log_bytes);
  // A disk that has become full does not end a job that has got so far.
  if (!log.ok() && attempt_ == 1) return std::move(log).status();
  if (!log.ok()) Say(std::string(ToStd(log.status().message())));
  return AttemptOutput::Make(log.ok() ? *std::move(log) : nullptr);
}

AttemptEnd JobSupervisor::StartAndWait(AttemptOutput* output) {
  const JobCommand command = AttemptCommand(options_, attempt_, folder_.get(), output);
  absl::StatusOr<std::unique_ptr<JobProcess>> job = JobProcess::Start(process_, command);
  started_ = job.ok();
  if (!started_) {
    Say(std::string(ToStd(job.status().message())));
    const bool missing = absl::IsNotFound(job.status());
    return {.status = missing ? 127 : absl::IsPermissionDenied(job.status()) ? 126 : 1};
  }
  if (output != nullptr) output->Begin();
  Say(fmt::format("{}, process {}: {}", AttemptText(attempt_), (*job)->pid(),
                  fmt::join(ShownCommand(options_.command, options_.secrets), " ")));
  Fields fields{{"attempt", static_cast<int64_t>(attempt_)}, {"pid", int64_t{(*job)->pid()}}};
  if (!log_path_.empty()) fields.emplace_back("log", log_path_);
  Write("attempt-start", fields);
  AttemptWatch watch(options_.limits, Clock::now());
  AttemptEnd end = WaitFor(**job, output, watch);
  EndLeft(end, watch.LimitOfLeft(Clock::now()), **job);
  return end;
}

// Ends what the command, which has ended, leaves running.
void JobSupervisor::EndLeft(const AttemptEnd& end, Milliseconds limit, JobProcess& job) {
  if (end.status != 0 || end.hang) {
    if (!job.KillAll()) Say(kUnkillable);
  } else if (options_.inner) {
    job.Release();  // the supervisor above ends it, or nobody does
  } else {
    const JobProcess::Left left = job.EndLeft(limit);
    if (left.told > 0)
      Say(fmt::format("the command has ended; {} that it left running got SIGTERM",
                      left.told == 1 ? "a process" : "processes"));
    if (!left.gone) Say(kUnkillable);
  }
}

AttemptEnd JobSupervisor::WaitFor(JobProcess& job, AttemptOutput* output, AttemptWatch& watch) {
  for (;;) {
    const std::optional<int> status = job.Ended();
    // Others of the group may be saving still: a shell, for one, ends before what it has started.
    if (status && watch.ending()) job.PassOn();
    if (status && !(watch.ending() && job.HasGroup())) {
      AttemptEnd end{.signal = WIFSIGNALED(*status) ? WTERMSIG(*status) : 0};
      end.status = end.signal != 0 ? 128 + end.signal : WEXITSTATUS(*status);
      end.stopped = watch.stopped();
      end.hang = watch.hang();
      end.leaves = watch.leaves();
      end.advised = watch.advised(Clock::now());
      return end;
    }
    std::optional<Milliseconds> limit;
    if (const auto next = watch.Next()) limit = Until(*next);
    if (options_.limits.hang_after)
      limit = std::min(*limit, std::clamp(*options_.limits.hang_after / 20, kLeastTick, kMostTick));
    int signal = 0;
    const SupervisorEvent event = process_.Wait(limit, &signal);
    if (folder_ && folder_->TakeHeartbeat()) watch.OnAlive(Clock::now());
    if (const auto life = LastLife()) watch.OnAlive(*life);  // of those that serve channels
    if (output != nullptr) watch.OnAlive(output->last());
    OnEvent(event, signal, watch, job);
    // Stacks are kept before SIGTERM, which ends most programs at once, and before its grace begins.
    if (const auto hangs = watch.Next(); !watch.ending() && hangs && *hangs <= Clock::now() && folder_)
      KeepStacks(folder_->stacks_file(), log_path_, options_.say);
    if (const AttemptWatch::Action due = watch.OnTime(Clock::now()); due.signal != 0) Carry(due, job);
  }
}

void JobSupervisor::OnEvent(SupervisorEvent event, int signal, AttemptWatch& watch, JobProcess& job) {
  switch (event) {
    case SupervisorEvent::kChild:
    case SupervisorEvent::kTime:
      return;
    case SupervisorEvent::kStop:
      return Stop(signal, watch, job);
    case SupervisorEvent::kNotice:
      if (options_.inner) return Carry({.signal = signal, .text = {}}, job);
      return TakeNotice({.kind = NoticeKind::kSignal, .detail = SignalName(signal), .at = EndOfJob()}, watch, job);
    case SupervisorEvent::kWake:
      const NoticeQueue::Content content = queue_.Take();
      for (const std::string& problem : content.problems) Say(problem);
      for (const Notice& notice : content.notices) TakeNotice(notice, watch, job);
  }
}

void JobSupervisor::Carry(const AttemptWatch::Action& action, JobProcess& job) {
  if (!action.text.empty()) Say(action.text);
  if (action.signal == 0) return;
  job.Signal(action.signal);
  Write("signal",
        {{"attempt", static_cast<int64_t>(attempt_)}, {"signal", SignalName(action.signal)}, {"why", action.text}});
}

// Returns the time when the scheduler ends this job, if that is sooner than the grace.
std::optional<absl::Time> JobSupervisor::EndOfJob() const {
  if (options_.inner) return std::nullopt;
  const absl::Time now = absl::Now();
  const std::optional<absl::Time> end = ParseJobEndTime(EnvironmentValue("SLURM_JOB_END_TIME"), now);
  return end && *end - now < absl::FromChrono(options_.limits.grace) ? end : std::nullopt;
}

std::optional<Milliseconds> LeftUntil(const Notice& notice) {
  if (!notice.at) return std::nullopt;
  return absl::ToChronoMilliseconds(*notice.at - absl::Now());
}

void JobSupervisor::Stop(int signal, AttemptWatch& watch, JobProcess& job) {
  Notice notice{.kind = NoticeKind::kSignal, .detail = SignalName(signal)};
  if (signal == SIGTERM) notice.at = EndOfJob();
  const AttemptWatch::Action action =
      watch.OnStop(signal, LeftUntil(notice), folder_ && folder_->ProgramWatches(), Clock::now());
  if (signal == SIGTERM) {
    const Milliseconds left = Until(*watch.kill_at());
    TellProgram(notice, left);
    // The program gets no signal, so no other event says that it was informed.
    if (action.signal == 0) {
      Write("notice", {{"kind", std::string(NoticeWord(notice.kind))},
                       {"detail", notice.detail},
                       {"final", notice.final},
                       {"seconds_left", InSeconds(left)}});
    }
  }
  Carry(action, job);
}

void JobSupervisor::TakeNotice(const Notice& notice, AttemptWatch& watch, JobProcess& job) {
  const std::optional<Milliseconds> left = LeftUntil(notice);
  const AttemptWatch::Action action = watch.OnNotice(notice, left, folder_ && folder_->ProgramWatches(), Clock::now());
  std::optional<Milliseconds> end;
  if (watch.kill_at()) end = Until(*watch.kill_at());
  // A program that is signalled may look for the notice at once.
  Announce(notice, left, end);
  Carry(action, job);
}

// Runs while no command runs.
void JobSupervisor::TakeIdleNotice(const Notice& notice) {
  Say(NoticeText(notice));
  Announce(notice, LeftUntil(notice), std::nullopt);
}

void JobSupervisor::Announce(const Notice& notice, std::optional<Milliseconds> left, std::optional<Milliseconds> end) {
  Fields fields{{"kind", std::string(NoticeWord(notice.kind))}, {"detail", notice.detail}, {"final", notice.final}};
  if (notice.at) fields.emplace_back("at", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", *notice.at, absl::UTCTimeZone()));
  if (left) fields.emplace_back("seconds_left", InSeconds(*left));
  Write("notice", fields);
  if (leaves_ && !notice.final) return;  // the program knows worse already
  leaves_ = leaves_ || notice.final;
  TellProgram(notice, end);
}

void JobSupervisor::TellProgram(const Notice& notice, std::optional<Milliseconds> end) {
  if (!folder_) return;
  std::optional<absl::Time> deadline;
  if (end) deadline = absl::Now() + absl::FromChrono(*end);
  if (const absl::Status told = folder_->Tell(notice, deadline); !told.ok()) Say(std::string(ToStd(told.message())));
}

void JobSupervisor::Tell(const AttemptEnd& end, const RestartPolicy::Decision& decision) {
  if (decision.restart) {
    Write("restart", {{"attempt", static_cast<int64_t>(attempt_ + 1)}, {"delay_seconds", InSeconds(decision.delay)}});
  }
  if (!started_ || (attempt_ == 1 && decision.outcome == JobOutcome::kSuccess)) return;
  std::string text = fmt::format("attempt {} {} after {}", attempt_, EndText(end), SecondsText(end.ran));
  if (decision.restart) {
    text += fmt::format("; {} follows in {}", AttemptText(attempt_ + 1), SecondsText(decision.delay));
  } else if (!decision.why.empty()) {
    text += fmt::format("; {}", decision.why);
  }
  Say(text);
}

// False if the command must not be started again.
bool JobSupervisor::Pause(Milliseconds delay) {
  const Clock::time_point until = Clock::now() + delay;
  for (;;) {
    int signal = 0;
    const SupervisorEvent event = process_.Wait(Until(until), &signal);
    if (event == SupervisorEvent::kTime) return true;
    if (event == SupervisorEvent::kStop) {
      Say(fmt::format("{} came while the command was not running; it is not started again", SignalName(signal)));
      Write("signal", {{"signal", SignalName(signal)}, {"why", std::string("the command was not running")}});
      return false;
    }
    if (event == SupervisorEvent::kNotice) TakeIdleNotice({.kind = NoticeKind::kSignal, .detail = SignalName(signal)});
    if (event == SupervisorEvent::kWake) {
      const NoticeQueue::Content content = queue_.Take();
      for (const std::string& problem : content.problems) Say(problem);
      for (const Notice& notice : content.notices) TakeIdleNotice(notice);
    }
    if (leaves_) {
      Say("the command is not started again on this machine");
      return false;
    }
  }
}

// `completes`: before_end is called.
void JobSupervisor::End(const std::string& failure, const RestartPolicy::Decision& decision, bool completes) {
  if (!options_.failure_file.empty() && decision.outcome == JobOutcome::kFailure && knows_why_) {
    if (const absl::Status wrote = WriteFailure(options_.failure_file, failure, output_tail_); !wrote.ok())
      Say(std::string(ToStd(wrote.message())));
  }
  if (completes && options_.before_end) options_.before_end(decision.outcome);
  if (decision.outcome == JobOutcome::kSuccess) RunHook("on-success", options_.on_success, decision);
  RunHook("on-end", options_.on_end, decision);
  WriteEnd(decision);
}

// A step that attempts have made again counts once.
void JobSupervisor::TakeSteps() {
  const auto steps = folder_ ? folder_->Steps() : std::nullopt;
  if (!steps) return;
  if (!steps_) steps_ = steps;
  steps_->first = std::min(steps_->first, steps->first);
  steps_->second = std::max(steps_->second, steps->second);
}

void JobSupervisor::WriteEnd(const RestartPolicy::Decision& decision) {
  Fields fields{{"outcome", std::string(OutcomeWord(decision.outcome))},
                {"status", int64_t{decision.status}},
                {"attempts", static_cast<int64_t>(attempt_)},
                {"why", decision.why}};
  const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  fields.emplace_back("seconds", seconds);
  const double dollars = options_.dollars_per_hour * seconds / 3600;
  if (dollars > 0) fields.emplace_back("dollars", dollars);
  if (steps_) {
    const uint64_t steps = steps_->second - steps_->first + 1;
    fields.emplace_back("steps", static_cast<int64_t>(steps));
    fields.emplace_back("last_step", static_cast<int64_t>(steps_->second));
    fields.emplace_back("step_seconds", seconds / static_cast<double>(steps));
    if (dollars > 0) fields.emplace_back("dollars_per_1000_steps", 1000 * dollars / static_cast<double>(steps));
  }
  Write("end", fields);
}

void JobSupervisor::RunHook(const char* name, const std::string& command, const RestartPolicy::Decision& decision) {
  if (command.empty()) return;
  const JobCommand hook = HookCommand(options_, command, decision, attempt_);
  if (const auto end = RunJobHook(process_, options_, name, hook)) Write("hook", *end);
}

}  // namespace

absl::StatusOr<int> RunSupervised(const SupervisorOptions& options) {
  return JobSupervisor(options).Run();
}

void EndBeforeBegin(const SupervisorOptions& options, const std::string& why) {
  JobSupervisor(options).EndBeforeBegin(why);
}

}  // namespace millrace
