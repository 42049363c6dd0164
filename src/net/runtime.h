#pragma once

#include <cstdint>

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "base/waiting_budget.h"
#include "net/event_loop.h"

namespace millrace {

struct RuntimeOptions {
  int io_threads = 1;
  int cpu_threads = 0;        // 0: one for each CPU that the process may use
  uint64_t memory_bytes = 0;  // 0: half of the memory that the process may use (cgroup or machine)
};

/// Holds the threads and memory that everything else borrows. The program makes it once (the CLI's main; one a process
/// in Python) and passes it down. It must outlive its users. Members are thread-safe.
///
///   Runtime runtime({.io_threads = 1, .memory_bytes = uint64_t{1} << 30});
///   Stores stores(runtime);
class Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options = {});

  MemoryBudget& memory() { return memory_; }
  /// Returns the budget from which decoders take memory for a moment, beside memory(), whatever loaders have reserved
  /// of that. It is an eighth of that of memory(), but no less than the largest image may take.
  WaitingBudget& decode_memory() { return decode_memory_; }
  ThreadPool& cpu() { return cpu_; }
  EventLoops& loops() { return loops_; }

 private:
  static constexpr uint64_t kLeastDecodeBytes = uint64_t{256} << 20;

  MemoryBudget memory_;
  WaitingBudget decode_memory_;
  EventLoops loops_;
  ThreadPool cpu_;
};

/// Returns the CPUs that this process may run on (affinity and cgroup), at least 1.
int UsableCpus();

/// Returns the bytes of memory that this process may use: the smaller of the machine's and the cgroup's.
uint64_t UsableMemory();

}  // namespace millrace
