#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cache/cached_store.h"
#include "dataset/staged_dataset.h"
#include "pipeline/loader.h"
#include "pipeline/stage_opener.h"
#include "pipeline/staged_facts.h"
#include "plan/stages.h"

namespace millrace {

/// A loader whose first epoch begins before the data set has an index (docs/plan.md#the-staged-first-epoch). It is the
/// concatenation of one ordinary plan for each stage, over the index of this stage alone, and rank r takes the
/// positions that are r modulo the world. While a stage is delivered, a thread makes the index of the next one.
/// Later epochs are those of a Loader over the whole data set. All of this follows from the listing, the options and
/// the seed, whether or not there is an index: an index only saves reading.
///
/// Steps span stages. If a stage ends within a step, its batch is filled by the next stage, and Next waits for the
/// index of this one. LastBatch is about the end of the epoch alone. Its repeats are those of a Loader with kWrap; with
/// kShort, each is a sample of the last stage. In the first epoch samples have the number -1. In all epochs the
/// augmentation of a sample follows from (seed, epoch, shard, offset in the shard).
class StagedLoader final : public BatchSource {
 public:
  /// Makes the loader. `facts` are those of DescribeStaged, for this start or another one; without them it is called
  /// first, and its errors are returned. With them it does not block: Next waits for a stage that is not opened yet.
  /// ResourceExhausted as Loader::Create. A stage has a third of a budget of its own, and the rest is for indexing.
  /// Loaders that share a budget give a stage the share of a loader. If the process's budget is twice as large, the
  /// next stage begins before this one ends, with as much.
  static absl::StatusOr<std::unique_ptr<StagedLoader>> Create(Runtime& runtime, std::unique_ptr<StagedDataset> data,
                                                              LoaderOptions options,
                                                              std::optional<StagedFacts> facts = std::nullopt);
  /// Ends the reads in flight, and waits for them. After the last batch of the first epoch it also waits until the
  /// index of the data set is whole, unless shards would have to be read for it.
  ~StagedLoader() override;

  /// Returns the next batch. Errors of later stages: FailedPrecondition if a shard has changed since it was listed, or
  /// if the samples of a stage have other fields than those of the first one. ResourceExhausted if a sample is too
  /// large.
  absl::StatusOr<std::optional<Batch>> Next() override;
  bool WaitReady(std::chrono::nanoseconds limit) override;
  LoaderReport report() const override;
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  /// The number of steps; 0 as long as it is not known: before an epoch after the first one.
  uint64_t steps_per_epoch() const override;
  uint64_t samples_per_epoch() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Time = std::chrono::steady_clock::time_point;
  using Pulled = absl::StatusOr<std::optional<Batch>>;
  /// Represents the place at which a loader begins to deliver an opened stage.
  struct Entry {
    uint64_t before = 0;  // samples of the stages before
    Position start;
  };

  StagedLoader(Runtime& runtime, std::unique_ptr<StagedDataset> data, LoaderOptions options, StagedFacts facts);

  absl::Status Begin(const StagedFacts& facts);
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const Dataset& dataset, const Entry& at) const;
  bool Advance(Time deadline);
  // These handle a stage and the next one.
  bool WaitOpened(Time deadline);
  void TakeNext();
  void EnterNext();
  absl::Status Enter();
  void Leave();
  void BeginNextEarly(uint64_t left);
  // These handle a batch.
  bool NeedsNext() const;
  bool IsLastFull(uint64_t left) const;
  void Receive();
  void ReceiveOfStage(Batch batch);
  void EndStage(Batch batch, bool full);
  void Fail(const absl::Status& status);
  // These handle the end of the first epoch.
  void EndEpoch(Batch batch);
  void EndStages();
  bool FillLast(Time deadline);
  uint64_t RowsOfLast() const;
  absl::StatusOr<std::unique_ptr<BatchSource>> MakeRepeats(uint64_t rows) const;

  bool in_stages() const { return stage_ < stages_.size(); }
  uint64_t stage_samples() const { return dataset_->index().size(); }
  uint64_t step() const { return options_.batch * options_.world; }
  /// Returns how far the step is begun after so many samples of the first epoch.
  uint64_t InStep(uint64_t samples) const { return (samples - origin_) % step(); }
  Position At(uint64_t epoch, uint64_t consumed, uint64_t stage, uint64_t before) const {
    return {epoch, consumed, start_.fingerprint, Position::Stage{.number = stage, .before = before}};
  }

  Runtime& runtime_;
  const LoaderOptions options_;
  const std::unique_ptr<StagedDataset> data_;   // the opener's
  const std::unique_ptr<StagedDataset> again_;  // for the samples that the last batch repeats
  const Stages stages_;
  const std::vector<BatchShape> shapes_;
  const Position start_;
  const uint64_t origin_;                      // samples of the first epoch before the first step
  const std::shared_ptr<CachedStore> cached_;  // that shards are read through to index them; null: there is no cache

  // These are used by the consumer alone.
  uint64_t stage_ = 0;                               // of loader_, or of the last one; as OpenedStage::stage
  uint64_t before_ = 0;                              // samples of the stages before
  std::shared_ptr<const Dataset> dataset_;           // of it
  std::optional<absl::StatusOr<OpenedStage>> next_;  // taken from the opener, and not entered yet
  Entry entry_;                                      // of next_, and of the stage that is being opened
  bool entered_ = false;                             // anything
  bool retried_ = false;                             // to open the next stage, after memory was lacking
  bool tried_early_ = false;                         // to begin the next stage, while this one is delivered
  std::optional<Pulled> pulled_;                     // from loader_
  std::optional<Batch> begun_;            // the rows of a step that the stages before have, if they end within it
  bool drops_ = false;                    // the rest of the first epoch
  bool at_end_ = false;                   // no stage fills begun_
  std::unique_ptr<BatchSource> repeats_;  // of the rows that begun_ lacks then
  std::optional<Pulled> ready_;           // for Next
  absl::Status failed_;
  bool ended_ = false;

  mutable std::mutex mutex_;
  LoaderReport report_;             // of delivered batches, and the waits of loaders that have ended
  std::unique_ptr<Loader> loader_;  // null while the next one is waited for
  uint64_t samples_per_epoch_ = 0;  // 0: not known
  StallLedger ledger_;

  StageOpener opener_;
};

}  // namespace millrace
