#include "job/served_job.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/errno_status.h"
#include "base/size.h"
#include "channel/checkpoint_mirror.h"
#include "channel/job_archive.h"
#include "channel/pipe_feeder.h"
#include "net/runtime.h"
#include "store/stores.h"
#include "supervisor/failure_file.h"
#include "supervisor/guarded_command.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

/// Read ahead for a channel. Twenty channels may take a quarter of a small machine.
constexpr uint64_t kChannelBytes = 64 << 20;

/// The supervisor asks before each attempt, and waits for the answer.
struct AttemptGate {
  UniqueFd supervisor{-1};
  UniqueFd feeder{-1};

  static absl::StatusOr<AttemptGate> Make() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
      return ErrnoStatus(errno, "a socket", "making it");
    AttemptGate gate;
    gate.supervisor = UniqueFd(ends[0]);
    gate.feeder = UniqueFd(ends[1]);
    return gate;
  }
};

ssize_t Receive(int fd, void* into, size_t bytes) {
  ssize_t got = 0;
  do {
    got = recv(fd, into, bytes, 0);
  } while (got < 0 && errno == EINTR);
  return got;
}

/// Represents a question of the supervisor.
struct GateQuestion {
  uint64_t attempt = 0;  // that is going to begin; 0: the job has ended
  JobOutcome outcome = JobOutcome::kFailure;
};

bool Ask(int gate, GateQuestion question) {
  char answer = 0;
  return send(gate, &question, sizeof question, MSG_NOSIGNAL) == sizeof question && Receive(gate, &answer, 1) == 1 &&
         answer == 1;
}

/// Counts the epochs of a channel that programs have read. The count is kept with the job, so that a resumed job finds
/// the pipe of the epoch at which it stopped.
class EpochsReached {
 public:
  EpochsReached(const TrainingJob& job, const Channel& channel)
      : path_(fmt::format("{}/input/config/channel-{}.epochs", job.root, channel.name)) {
    std::ifstream file(path_);
    if (!(file >> count_)) count_ = 0;
  }
  uint64_t count() const { return count_; }
  void Reach(uint64_t count) {
    if (count <= count_) return;
    count_ = count;
    // If it is missing, a program has to begin with the first epochs.
    (void)WriteFileAtomically(path_, fmt::format("{}\n", count));
  }

 private:
  const std::string path_;
  uint64_t count_ = 0;
};

std::string EpochText(const Channel& channel, const FedEpoch& fed) {
  const char* const noun = channel.type == ChannelType::kAugmentedManifest ? "line" : "object";
  const std::string bytes = FormatSize(fed.bytes);
  if (fed.whole())
    return fmt::format("channel {}: epoch {}: {}, {}", channel.name, fed.epoch, Counted(fed.of, noun), bytes);
  return fmt::format("channel {}: epoch {}: closed by the program after {} of {} ({})", channel.name, fed.epoch,
                     fed.items, Counted(fed.of, noun), bytes);
}

class PipeJob {
 public:
  PipeJob(const TrainingJob& job, const std::vector<PipeInput>& pipes, const JobPlaces& places, JobLineage* lineage,
          const SupervisorOptions& options)
      : job_(job), pipes_(pipes), places_(places), lineage_(lineage), options_(options), stores_(runtime_) {
    for (const PipeInput& pipe : pipes) reached_.emplace_back(job, pipe.channel);
  }

  /// Answers the supervisor until that has ended. In a thread.
  void Serve(int gate) {
    for (GateQuestion question; Receive(gate, &question, sizeof question) == sizeof question;) {
      const absl::Status done = question.attempt > 0 ? BeginAttempt() : EndJob(question.outcome);
      if (!done.ok()) Fail(done);
      const char answer = done.ok() ? 1 : 0;
      if (send(gate, &answer, 1, MSG_NOSIGNAL) != 1) return;
    }
  }
  bool ending() const { return ending_; }
  /// If the job has ended, a signal is for the work at its end: returns true and stops that work.
  bool StopEnding() {
    if (!ending_) return false;
    return stop_.request_stop();
  }
  /// Stops feeding.
  void End() { feeders_.clear(); }
  /// Why the channels cannot be fed, if that is so and was not asked for before.
  std::optional<absl::Status> TakeFailure() {
    std::lock_guard lock(mutex_);
    return std::exchange(failure_, std::nullopt);
  }

 private:
  absl::Status BeginAttempt() {
    if (!places_.checkpoints.empty() && !mirror_) {
      ASSIGN_OR_RETURN(Location folder, stores_.Open(places_.checkpoint_folder));
      ASSIGN_OR_RETURN(Location place, stores_.Open(places_.checkpoints));
      folder.prefix = AsFolder(folder.prefix);
      place.prefix = AsFolder(place.prefix);
      mirror_.emplace(folder, place, CheckpointMirrorOptions{.say = options_.say});
    }
    feeders_.clear();
    for (size_t i = 0; i < pipes_.size(); ++i) {
      const auto& [channel, items] = pipes_[i];
      PipeFeederOptions feeding{.path = job_.ChannelFolder(channel)};
      feeding.rank = job_.RankIn(channel);
      feeding.world = job_.HostsOf(channel).size();
      feeding.epochs = std::max(channel.epochs, reached_[i].count() + 1);
      feeding.memory_bytes = std::min<uint64_t>(kChannelBytes, runtime_.memory().limit() / pipes_.size());
      feeding.fed = [this, i](const FedEpoch& fed) {
        reached_[i].Reach(fed.epoch + 1);
        options_.say(EpochText(pipes_[i].channel, fed));
        Record([&](JobLineage& lineage) { return lineage.Epoch(pipes_[i].channel, fed); });
      };
      feeding.failed = [this](const absl::Status& status) { Fail(status); };
      RemoveStalePipes(feeding.path);
      ASSIGN_OR_RETURN(const Location at, stores_.Open(items.root.empty() ? "/" : items.root));
      ASSIGN_OR_RETURN(feeders_.emplace_back(), PipeFeeder::Make(*at.store, channel, items, std::move(feeding)));
    }
    return absl::OkStatus();
  }

  absl::Status EndJob(JobOutcome outcome) {
    feeders_.clear();
    ending_ = true;
    absl::Status status;
    if (mirror_) status = mirror_->Finish(stop_.get_token());
    if (places_.output.empty() || outcome == JobOutcome::kElsewhere) return status;
    if (outcome != JobOutcome::kFailure) status.Update(SaveOutput("model", job_.root + "/model"));
    status.Update(SaveOutput("output", job_.root + "/output/data"));
    return status;
  }

  absl::Status SaveOutput(const std::string& name, const std::string& folder) {
    // Two hosts must not write one object.
    const std::string own = job_.current_host == job_.hosts.front() ? name : name + "-" + job_.current_host;
    ASSIGN_OR_RETURN(Location to, stores_.Open(places_.output));
    const std::string files = to.Key(own) + "/";
    if (!places_.archives) return SaveEachFile(name, folder, *to.store, files);
    const std::string key = to.Key(own + ".tar.gz");
    const absl::StatusOr<SavedArchive> saved = SaveArchive(stores_, folder, *to.store, key, stop_.get_token());
    if (!saved.ok()) return Annotate(saved.status(), fmt::format("{} is not saved", folder));
    for (const std::string& link : saved->broken_links)
      options_.say(fmt::format("{}/{} is a link to nothing and is not saved", folder, link));
    if (saved->bytes > 0) {
      options_.say(fmt::format("{} is in {} ({}){}", folder, to.store->Uri(key), FormatSize(saved->bytes),
                               saved->changed ? "; files changed meanwhile, as tar says on stderr" : ""));
      Record([&](JobLineage& lineage) { return lineage.Output(name, to.store->Uri(key), saved->etag, saved->bytes); });
    } else if (!saved->lacks.ok()) {
      if (absl::Status sent = SaveEachFile(name, folder, *to.store, files); !sent.ok()) return sent;
    }
    return saved->lacks.ok() ? absl::OkStatus()
                             : Annotate(saved->lacks, fmt::format("{} is not saved as it should be", folder));
  }

  absl::Status SaveEachFile(const std::string& name, const std::string& folder, ObjectStore& to,
                            const std::string& prefix) {
    const absl::StatusOr<uint64_t> sent = SaveFiles(stores_, folder, to, prefix, stop_.get_token());
    if (!sent.ok()) return Annotate(sent.status(), fmt::format("{} is not saved", folder));
    if (*sent == 0) return absl::OkStatus();
    options_.say(fmt::format("{} to {}", Counted(*sent, "file"), to.Uri(prefix)));
    Record([&](JobLineage& lineage) { return lineage.OutputFiles(name, to.Uri(prefix), *sent); });
    return absl::OkStatus();
  }

  /// An error of the record does not end the job.
  void Record(const std::function<absl::Status(JobLineage&)>& write) {
    if (lineage_ == nullptr) return;
    if (const absl::Status wrote = write(*lineage_); !wrote.ok()) options_.say(std::string(ToStd(wrote.message())));
  }

  void Fail(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    if (!failed_) failure_ = status;
    failed_ = true;
    GuardedCommand::Wake();
  }

  const TrainingJob& job_;
  const std::vector<PipeInput>& pipes_;
  const JobPlaces& places_;
  JobLineage* const lineage_;
  const SupervisorOptions& options_;
  Runtime runtime_;
  Stores stores_;
  std::vector<EpochsReached> reached_;
  std::vector<std::unique_ptr<PipeFeeder>> feeders_;  // of the attempt; the thread's, and after it the owner's
  std::optional<CheckpointMirror> mirror_;            // likewise
  std::stop_source stop_;                             // of what is done at the end
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  bool failed_ = false;
  std::optional<absl::Status> failure_;
};

}  // namespace

absl::StatusOr<int> RunServed(const TrainingJob& job, const std::vector<PipeInput>& pipes, ChannelMounts& mounts,
                              const JobPlaces& places, JobLineage* lineage, const SupervisorOptions& options) {
  ASSIGN_OR_RETURN(AttemptGate gate, AttemptGate::Make());
  SupervisorOptions supervisor = options;
  supervisor.before_attempt = [&gate](uint64_t attempt) {
    if (Ask(gate.supervisor.get(), {.attempt = attempt})) return absl::OkStatus();
    return absl::UnavailableError("the channels of this job cannot be served");
  };
  supervisor.before_end = [&gate](JobOutcome outcome) {
    (void)Ask(gate.supervisor.get(), {.attempt = 0, .outcome = outcome});
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<GuardedCommand> command, GuardedCommand::Prepare([&] {
                     gate.feeder = UniqueFd(-1);
                     const absl::StatusOr<int> status = RunSupervised(supervisor);
                     if (!status.ok()) options.say(std::string(ToStd(status.status().message())));
                     return status.value_or(1);
                   }));
  gate.supervisor = UniqueFd(-1);
  PipeJob feeding(job, pipes, places, lineage, options);
  std::thread serving([&] { feeding.Serve(gate.feeder.get()); });
  std::optional<std::chrono::steady_clock::time_point> limit;
  if (places.max_seconds) limit = std::chrono::steady_clock::now() + std::chrono::seconds(*places.max_seconds);
  command->Begin();
  bool failed = false;
  const auto tell = [&] {
    std::optional<absl::Status> failure = feeding.TakeFailure();
    if (!failure) failure = mounts.TakeFailure();
    if (!failure) return;
    failed = true;
    options.say(std::string(ToStd(failure->message())));
    if (!feeding.ending()) command->Signal(SIGTERM);
    if (const absl::Status wrote = WriteFailure(options.failure_file, ToStd(failure->message()), ""); !wrote.ok())
      options.say(std::string(ToStd(wrote.message())));
  };
  const auto step = [&, left = limit](std::optional<int> signal, std::optional<int> ended) mutable {
    const bool notice = signal == SIGUSR1 || signal == SIGUSR2;
    if (signal && (notice || !feeding.StopEnding())) command->Signal(*signal);
    tell();
    if (!ended && left && std::chrono::steady_clock::now() >= *left && !feeding.ending()) {
      left.reset();
      options.say(fmt::format("the job has run for {} seconds, as long as it may, and is ended", *places.max_seconds));
      command->Signal(SIGTERM);
    }
    return ended;
  };
  const int status = command->Watch(step, limit);
  serving.join();
  feeding.End();
  return failed ? 1 : status;
}

}  // namespace millrace
