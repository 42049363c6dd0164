#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/checkpoints.h"
#include "process.h"

namespace millrace::python {

namespace nb = nanobind;

/// _core.Checkpoint: one that was found, to be read. Its members are called with the GIL held.
class CheckpointHandle;

/// _core.CheckpointSave: one that was begun, and is to be finished once.
class CheckpointSaveHandle {
 public:
  CheckpointSaveHandle(std::shared_ptr<Process> process, SaveProtocol save, ProcessLocal<CheckpointCounts::Save> count)
      : process_(std::move(process)), save_(std::move(save)), count_(std::move(count)) {}

  std::string attempt() const { return attempt_; }
  /// Throws if it was taken already.
  SaveProtocol Take();
  /// Call this with Take().
  ProcessLocal<CheckpointCounts::Save> TakeCount() { return std::move(count_); }

 private:
  const std::shared_ptr<Process> process_;  // whose counts these are
  std::optional<SaveProtocol> save_;
  ProcessLocal<CheckpointCounts::Save> count_;  // has failed if nobody takes it
  const std::string attempt_ = save_->entry().attempt;
};

/// _core.Checkpoints: those below one URI, fit for Python's threads, signals and forks. Members are called with the GIL
/// held, from any thread, and release it while they wait; Python's signal handlers run meanwhile.
class CheckpointsHandle {
 public:
  explicit CheckpointsHandle(const std::string& uri);

  std::string uri() const { return checkpoints_->Uri(); }

  uint64_t Claim();
  /// `shards`: (name, pieces). A piece is a bytes-like object, which must not change meanwhile, or has `size` and
  /// `copy_to(offset, memory)`, which is called in order, from another thread, when its turn has come.
  using Shards = std::vector<std::pair<std::string, std::vector<nb::object>>>;
  void Save(const nb::int_& step, const Shards& shards, const nb::int_& keep, const nb::int_& keep_every,
            std::vector<uint64_t> keep_steps);
  /// Begins a save whose shards several processes write: Begin, then Upload in all of them, then Finish or Abandon
  /// here.
  std::shared_ptr<CheckpointSaveHandle> Begin(const nb::int_& step, const nb::int_& keep, const nb::int_& keep_every,
                                              std::vector<uint64_t> keep_steps);
  /// Returns what Finish needs.
  std::string Upload(const nb::int_& step, const std::string& attempt, const Shards& shards) const;
  void Finish(const std::shared_ptr<CheckpointSaveHandle>& save, const std::vector<std::string>& uploaded);
  /// Removes what was uploaded. Throws only if another process has claimed the checkpoints.
  void Abandon(const std::shared_ptr<CheckpointSaveHandle>& save);
  /// Returns the steps of all that are committed, in that order.
  std::vector<uint64_t> Steps() const;
  /// Returns that of `step`, or the newest.
  std::shared_ptr<CheckpointHandle> Find(const std::optional<nb::int_>& step) const;

 private:
  friend class CheckpointHandle;
  void CheckOwnProcess() const { python::CheckOwnProcess(maker_, "Checkpoints"); }

  const pid_t maker_ = getpid();
  const std::shared_ptr<Process> process_;
  std::mutex writing_;  // of Claim and Save; taken without the GIL
  std::shared_ptr<Checkpoints> checkpoints_;
};

class CheckpointHandle {
 public:
  CheckpointHandle(pid_t maker, std::shared_ptr<Process> process, std::shared_ptr<Checkpoints> checkpoints,
                   CheckpointManifest manifest)
      : maker_(maker),
        process_(std::move(process)),
        checkpoints_(std::move(checkpoints)),
        manifest_(std::move(manifest)) {}

  uint64_t step() const { return manifest_.step; }
  std::string attempt() const { return manifest_.attempt; }
  /// Returns (name, bytes) of each.
  std::vector<std::pair<std::string, uint64_t>> Shards() const;
  /// Reads all shards, verified. `into`: one writable bytes-like object a shard, of just its size.
  void Read(const std::vector<nb::object>& into) const;
  /// Reads ranges, verified: (number of the shard, offset, writable bytes-like object of the range's size). Returns how
  /// many bytes were read for that.
  uint64_t ReadRanges(const std::vector<std::tuple<size_t, uint64_t, nb::object>>& ranges) const;

 private:
  const pid_t maker_;
  const std::shared_ptr<Process> process_;
  const std::shared_ptr<const Checkpoints> checkpoints_;
  const CheckpointManifest manifest_;
};

}  // namespace millrace::python
