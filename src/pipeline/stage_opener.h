#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "base/status.h"
#include "dataset/staged_dataset.h"
#include "pipeline/loader.h"
#include "plan/stages.h"

namespace millrace {

/// A stage that was opened: its number, stages.size() if the first epoch has no more samples (`dataset` is null), or
/// stages.size() + 1 for the whole data set.
struct OpenedStage {
  uint64_t stage = 0;
  std::shared_ptr<const Dataset> dataset;
  uint64_t reach = 0;  // samples of it and of later stages, if these are fewer than a step; with LastBatch::kDrop
  std::unique_ptr<Loader> loader = nullptr;  // null: it is yet to be made
};

/// Finds the first stage from `stage` on that has samples; blocking.
absl::StatusOr<OpenedStage> FindStage(StagedDataset& data, const Stages& stages, const LoaderOptions& options,
                                      uint64_t stage);

/// A thread that opens the stages of a staged loader, one ahead of its consumer, and at last the whole data set. The
/// consumer is one thread at a time. All arguments of the constructor outlive it.
class StageOpener {
 public:
  using Begin = std::function<absl::StatusOr<std::unique_ptr<Loader>>(const Dataset&)>;

  /// Takes `completes_index`: the whole is opened, too, unless shards would have to be read again and there is no other
  /// use.
  StageOpener(StagedDataset& data, const Stages& stages, const LoaderOptions& options, bool completes_index)
      : data_(data), stages_(stages), options_(options), completes_index_(completes_index) {}
  /// Ends the opening in progress, unless `Complete` was called, and waits for it.
  ~StageOpener();

  /// Opens the stages from `first` on. `begin` makes the loader of the first one, so that samples are fetched before
  /// the consumer asks. If it is null, no loader is made.
  void Start(uint64_t first, Begin begin);
  /// Makes the destructor wait until the index of the data set is whole.
  void Complete() { completes_ = true; }

  /// Returns true when the next one is there, or an error.
  bool Wait(std::chrono::steady_clock::time_point deadline);
  bool ready();
  /// Takes it; blocking.
  absl::StatusOr<OpenedStage> Take();
  /// Opens that stage again, after an error was taken.
  void Retry();

 private:
  using Lock = std::unique_lock<std::mutex>;

  absl::StatusOr<OpenedStage> Open(uint64_t stage, const Begin& begin);
  absl::StatusOr<uint64_t> Reach(const OpenedStage& from);
  void Run(uint64_t stage, const Begin& begin);

  StagedDataset& data_;
  const Stages& stages_;
  const LoaderOptions& options_;
  const bool completes_index_;
  bool completes_ = false;  // the consumer's

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::StatusOr<OpenedStage>> opened_;
  uint64_t refused_ = 0;  // the stage of an error
  bool stopping_ = false;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace millrace
