#pragma once

#include <pybind11/pybind11.h>

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

namespace py = pybind11;

/// _core.Checkpoint: one that was found, to be read. Its members are called with the GIL held.
class CheckpointHandle;

/// _core.Checkpoints: those below one URI, fit for Python's threads, signals and forks. Members are called with the GIL
/// held, from any thread, and release it while they wait; Python's signal handlers run meanwhile.
class CheckpointsHandle {
 public:
  explicit CheckpointsHandle(const std::string& uri);

  std::string uri() const { return checkpoints_->Uri(); }

  uint64_t Claim();
  /// `shards`: (name, bytes-like objects, which must not change meanwhile).
  void Save(const py::int_& step, const std::vector<std::pair<std::string, std::vector<py::buffer>>>& shards,
            const py::int_& keep);
  /// The steps of all that are committed, in that order.
  std::vector<uint64_t> Steps() const;
  /// That of `step`, or the newest.
  std::shared_ptr<CheckpointHandle> Find(const std::optional<py::int_>& step) const;

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
  /// (name, bytes)
  std::vector<std::pair<std::string, uint64_t>> Shards() const;
  /// Reads all shards, verified. `into`: one writable bytes-like object a shard, of just its size.
  void Read(const std::vector<py::buffer>& into) const;

 private:
  const pid_t maker_;
  const std::shared_ptr<Process> process_;
  const std::shared_ptr<const Checkpoints> checkpoints_;
  const CheckpointManifest manifest_;
};

void BindCheckpoints(py::module_& module);

}  // namespace millrace::python
