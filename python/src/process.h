#pragma once

#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/checkpoint_counts.h"
#include "net/metrics_server.h"
#include "net/process_metrics.h"
#include "net/runtime.h"
#include "pipeline/loader_totals.h"
#include "pipeline/memory_shares.h"
#include "store/request_counts.h"
#include "store/stores.h"

/// All objects of this Python process share this. It also holds the rule for forks: threads do not survive a fork, so
/// an owner of threads belongs to the process that made it. In a child it is refused before it is touched, since its
/// locks may be held by threads that do not exist there, and it is never destroyed. Objects that the child makes itself
/// get a Runtime of their own. All functions here are called with the GIL held.

namespace millrace::python {

/// Destroys in the process that made the object; anywhere else leaks it on purpose.
template <typename T>
struct DeleteInOwnProcess {
  pid_t owner = getpid();
  void operator()(T* object) const {
    if (getpid() == owner) delete object;
  }
};

/// Holds an object that is destroyed only in the process that made it.
template <typename T>
using ProcessLocal = std::unique_ptr<T, DeleteInOwnProcess<T>>;

/// Holds the threads, budget and stores of one process. Alive while anything uses it, arrays of batches included.
struct Process {
  /// `cpu_nice` is added to the nice of the threads of the CPU pool: how far they give way to those of the program.
  Process(const RuntimeOptions& options, int cpu_nice, std::chrono::nanoseconds outage_limit);
  /// Serves what it does as metrics from now on.
  absl::Status ServeMetrics(const MetricsAddress& address);

  Runtime runtime;
  StoreCounts requests;
  Stores stores;
  MemoryShares shares;  // for loaders without a budget of their own
  LoaderTotals loaders;
  CheckpointCounts checkpoints;
  std::unique_ptr<MetricsServer> metrics;  // null: not served
};

/// Returns that of this process; made when first needed.
std::shared_ptr<Process> CurrentProcess();

/// Sets the options of the Runtime and the Stores that will be made. With `metrics` they are made now, and metrics are
/// served: in this process, not in its forks. Throws UsageError when this process has them already, and the errors of
/// MetricsServer::Start.
void Configure(const RuntimeOptions& options, int cpu_nice, std::chrono::nanoseconds outage_limit,
               const std::optional<MetricsAddress>& metrics);

/// Returns the URL of the metrics of this process; nullopt if they are not served.
std::optional<std::string> MetricsUrl();

/// Lets go of the Runtime, which ends when nothing uses it any more. For the end of the interpreter.
void ReleaseProcess();

/// Throws UsageError unless `maker`, the process that made the object called `what`, is this one.
void CheckOwnProcess(pid_t maker, std::string_view what);

}  // namespace millrace::python
