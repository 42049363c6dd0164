#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <semaphore>
#include <stop_token>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/progress.h"
#include "pack/shard_packer.h"
#include "store/stores.h"

namespace millrace {

/// Has the number of shards that are packed side by side, and the memory for that.
struct PackerMemory {
  Reservation reserved;   // of the whole budget
  uint64_t count = 0;     // packers
  ptrdiff_t writing = 0;  // of these at a time; the others begin or end a shard, which is waiting for the store
  uint64_t share = 0;     // what each has for its buffers, so that none waits for another's
};

/// Returns ResourceExhausted, with the remedy, if not even one fits.
absl::StatusOr<PackerMemory> ReserveForPackers(MemoryBudget& budget, const PackPlan& plan, const ShardEncoder& encoder,
                                               const Location& destination, const ImageChange& images);

/// Packs shards side by side, on threads of its own. Use it once. The arguments must outlive it.
class Packers {
 public:
  Packers(const PackWork& work, const PackerMemory& memory, const ProgressFn& progress, std::stop_token stop,
          std::vector<uint64_t> shards);

  /// Appends the samples that were left out, in order. Returns the first error of any thread; the others are then
  /// stopped. Blocking.
  absl::Status Run(std::vector<SkippedSample>* skipped);

 private:
  void PackSome();
  void Advance(int64_t bytes);

  const PackWork& work_;
  const PackerMemory& memory_;
  const std::vector<uint64_t> shards_;
  std::atomic<size_t> next_{0};
  std::counting_semaphore<> turns_;  // to write
  uint64_t total_ = 0;

  std::mutex progress_mutex_;
  ProgressMeter progress_;
  int64_t done_ = 0;

  std::mutex mutex_;  // guards what follows
  absl::Status status_;
  std::map<uint64_t, std::vector<SkippedSample>> skipped_;  // by shard

  std::stop_source stop_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace millrace
