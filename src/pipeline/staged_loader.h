#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "dataset/staged_dataset.h"
#include "pipeline/loader.h"
#include "plan/stages.h"

namespace millrace {

/// A loader whose first epoch begins before the data set has an index (docs/plan.md#the-staged-first-epoch). It is the
/// concatenation of one ordinary plan for each stage, over the index of this stage alone, and rank r takes the
/// positions that are r modulo the world. While a stage is delivered, a thread makes the index of the next one.
/// Later epochs are those of a Loader over the whole data set. All of this follows from the listing, the options and
/// the seed, whether or not there is an index: an index only saves reading.
///
/// No step spans two stages: the last one of a stage is as the last one of an epoch. In the first epoch samples have
/// the number -1. In all epochs the augmentation of a sample follows from (seed, epoch, shard, offset in the shard).
class StagedLoader final : public BatchSource {
 public:
  /// Opens the first stage that has samples, or that of options.start; blocking. InvalidArgument for options that a
  /// staged loader does not have (a mix, or LastBatch::kDrop and kWrap). FailedPrecondition for a position of another
  /// listing, policy or seed. Other errors are those of StagedDataset and Loader::Create. A stage has three eighths of
  /// the memory, the rest is for indexing.
  static absl::StatusOr<std::unique_ptr<StagedLoader>> Create(Runtime& runtime, std::unique_ptr<StagedDataset> data,
                                                              LoaderOptions options);
  /// Ends what is being read, and waits for it. After the last batch of the first epoch it also waits until the index
  /// of the data set is whole, unless shards would have to be read for it.
  ~StagedLoader() override;

  /// Errors of later stages: FailedPrecondition if a shard has changed since it was listed, or if the samples of a
  /// stage have other fields than those of the first one. ResourceExhausted if a sample is too large.
  absl::StatusOr<std::optional<Batch>> Next() override;
  bool WaitReady(std::chrono::nanoseconds limit) override;
  LoaderReport report() const override;
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  /// 0 as long as they are not known: before an epoch after the first one.
  uint64_t steps_per_epoch() const override;
  uint64_t samples_per_epoch() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Pulled = absl::StatusOr<std::optional<Batch>>;
  /// `stage` is the number of a stage, or stages_.size() if the first epoch has no more samples (`dataset` is null), or
  /// stages_.size() + 1 for the whole data set.
  struct Opened {
    uint64_t stage = 0;
    std::unique_ptr<Dataset> dataset;
  };

  StagedLoader(Runtime& runtime, std::unique_ptr<StagedDataset> data, LoaderOptions options);

  absl::Status CheckOptions() const;
  absl::Status Begin();
  // For the thread.
  void OpenAhead(uint64_t stage);
  absl::StatusOr<Opened> OpenNext(uint64_t stage);
  // For the consumer.
  absl::StatusOr<Opened> Take();
  absl::Status Enter(Opened opened, uint64_t before, const Position& start);
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const Dataset& dataset, uint64_t before, const Position& start);
  void Leave();
  void FinishBatch(Batch* batch);
  bool WaitsForStage() const;
  bool in_stages() const { return stage_ < stages_.size(); }
  Position At(uint64_t epoch, uint64_t consumed, uint64_t stage, uint64_t before) const {
    return {epoch, consumed, fingerprint_, Position::Stage{.number = stage, .before = before}};
  }

  Runtime& runtime_;
  const LoaderOptions options_;
  const std::unique_ptr<StagedDataset> data_;
  const Stages stages_;
  const uint64_t fingerprint_;
  std::vector<BatchShape> shapes_;
  bool completes_index_ = false;  // else shards of stages before the first one would be read for nothing else

  // Used by the consumer alone.
  uint64_t stage_ = 0;   // being delivered; as Opened::stage
  uint64_t before_ = 0;  // samples of the stages before
  std::unique_ptr<Dataset> dataset_;
  std::optional<Pulled> pulled_;  // from loader_
  absl::Status failed_;
  bool ended_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::StatusOr<Opened>> opened_;  // by the thread, for the consumer
  bool stopping_ = false;
  LoaderReport report_;             // of what was delivered, and the waits of loaders that have ended
  std::unique_ptr<Loader> loader_;  // null while the next one is waited for
  uint64_t samples_per_epoch_ = 0;  // 0: not known
  StallLedger ledger_;

  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace millrace
