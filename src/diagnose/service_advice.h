#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "diagnose/cost_model.h"
#include "diagnose/data_source.h"
#include "diagnose/prices.h"

/// Says if CPU machines beside a training machine pay. It shows the bound of a step, the number and kind of machines of
/// the data service that end it, and the price of steps before and after. Pure. Bytes are bytes, times seconds.
///
/// The model: a step needs a number of samples, for all accelerators of the training machine together. The training
/// machine or a worker reads and decodes each of these. A step takes as long as its slowest resource. These are the
/// accelerators, the CPUs of the training machine, its network, the store as one machine sees it, and the CPUs of the
/// workers. The CPUs of the training machine decode, and receive samples that workers have decoded. The training
/// machine decodes as much as its CPUs can.

namespace millrace {

/// This is the number of CPU-seconds that a trainer takes for each byte of rows that it receives, as
/// bench/service/run.py measures them.
inline constexpr double kReceiveSecondsPerByte = 0.5e-9;
/// No number of workers above it is considered.
inline constexpr int kMaxAdvisedWorkers = 1024;

enum class StepBound { kAccelerator, kCpu, kNetwork, kStore };
/// "accelerator", "cpu", "network", "store".
std::string_view StepBoundName(StepBound bound);

struct ServiceQuestion {
  MachinePrice trainer;
  std::vector<MachinePrice> kinds;  // of machines for workers
  std::optional<int> workers;       // absent: as many as are needed

  uint64_t batch = 128;               // of each accelerator
  double step_seconds = 0;            // of the model, if no data are waited for; 0: not known
  double cpu_seconds_per_sample = 0;  // reading and decoding; 0: not known
  double receive_seconds_per_sample = 0;
  double sample_bytes = 0;              // as the store has them
  double row_bytes = 0;                 // as workers send them
  double network_bytes_per_second = 0;  // of the training machine; 0: no limit that is known
  double store_bytes_per_second = 0;    // to one machine; 0: no limit that is known

  std::optional<double> measured_before;  // a step as it is
  std::optional<double> measured_after;   // a step with `workers` machines
};

/// Has the time of a step, and its cause.
struct StepTime {
  double seconds = 0;
  StepBound bound = StepBound::kAccelerator;
  double local_share = 1;  // of the samples, those that the training machine decodes
};

/// Describes one kind of machine for workers.
struct ServicePlan {
  MachinePrice kind;
  int workers = 0;
  StepTime after;
  bool measured = false;      // `after` was given
  double vcpus_each = 0;      // of all machines, for each accelerator
  double dollars_before = 0;  // of 100 steps; 0: a price is not known
  double dollars_after = 0;
  double speedup = 1;
  double saving = 0;
  std::vector<Derivation> lines;
};

struct ServiceAdvice {
  StepTime before;
  int accelerators = 1;
  double vcpus_each = 0;         // that the machine has for each accelerator
  std::optional<VcpuNeed> need;  // absent: the time of a step, or of a sample, is not known
  int most_cpu_utilization = 0;  // that CloudWatch shows: 100 % for each vCPU
  int most_gpu_utilization = 0;
  std::vector<ServicePlan> plans;  // of each kind, in the order of the question
  std::optional<size_t> best;      // of the plans; absent: none is better than no workers
  std::vector<Derivation> lines;
  std::vector<std::string> sentences;
};

/// Returns InvalidArgument if a number is missing: the times of a step that were measured, or the time of the model and
/// the CPU of a sample.
absl::StatusOr<ServiceAdvice> AdviseService(const ServiceQuestion& question);

/// Returns a step with so many workers of a kind, by the model.
StepTime StepWith(const ServiceQuestion& question, int workers, const MachinePrice& kind);

}  // namespace millrace
