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

#include "cache/cached_store.h"
#include "dataset/staged_dataset.h"
#include "pipeline/loader.h"
#include "plan/stages.h"

namespace millrace {

/// The facts about a staged loader that are known before it reads samples.
struct StagedFacts {
  std::vector<BatchShape> shapes;
  Position start;                          // of the first batch
  uint64_t asked = 0;                      // the stage of `start`; a number beyond the stages is the whole data set
  uint64_t stage = 0;                      // the first one from there on that has samples
  std::shared_ptr<const Dataset> dataset;  // of it; null if there is none
  uint64_t samples = 0;                    // of `dataset`
  uint64_t bytes = 0;                      // of its shards
  std::optional<CacheReport> cache;        // of reading to index them, if there is a cache
};

/// Opens the first stage that has samples, or that of options.start; blocking. Shards that are read for its index are
/// read through options.cache. Errors are those of SettleStaged, StagedDataset and DescribeLoader.
absl::StatusOr<StagedFacts> DescribeStaged(StagedDataset& data, const LoaderOptions& options);

/// Where a loader with these options begins. InvalidArgument for options that a staged loader does not have (a mix, or
/// LastBatch::kDrop and kWrap). FailedPrecondition for a position of another listing, policy or seed. Reads nothing.
absl::StatusOr<Position> SettleStaged(const StagedDataset& data, const LoaderOptions& options);

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
  /// `facts` are those of DescribeStaged, for this start or another one; without them it is called first, and its
  /// errors are returned. With them it does not block: what is not opened yet is waited for by Next. ResourceExhausted
  /// as Loader::Create. A stage has three eighths of the memory, the rest is for indexing.
  static absl::StatusOr<std::unique_ptr<StagedLoader>> Create(Runtime& runtime, std::unique_ptr<StagedDataset> data,
                                                              LoaderOptions options,
                                                              std::optional<StagedFacts> facts = std::nullopt);
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
    std::shared_ptr<const Dataset> dataset;
    std::unique_ptr<Loader> loader = nullptr;  // null: it is yet to be made
  };
  /// The place at which a loader begins to deliver what was opened.
  struct Entry {
    uint64_t before = 0;  // samples of the stages before
    Position start;
  };

  StagedLoader(Runtime& runtime, std::unique_ptr<StagedDataset> data, LoaderOptions options, StagedFacts facts);

  absl::Status Begin(const StagedFacts& facts);
  // For the thread.
  /// The first stage from `*stage` on that has samples; then the one behind it is next. `begins`: with its loader.
  absl::StatusOr<Opened> OpenStage(uint64_t* stage, bool begins) const;
  void OpenAhead(uint64_t stage, bool begins);
  // For the consumer.
  absl::StatusOr<Opened> Take();
  absl::Status EnterNext();
  absl::Status Enter();
  void Leave();
  void FinishBatch(Batch* batch);
  bool WaitOpened(std::chrono::steady_clock::time_point deadline);
  bool in_stages() const { return stage_ < stages_.size(); }
  // For both.
  absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const Dataset& dataset, const Entry& at) const;
  Position At(uint64_t epoch, uint64_t consumed, uint64_t stage, uint64_t before) const {
    return {epoch, consumed, start_.fingerprint, Position::Stage{.number = stage, .before = before}};
  }

  Runtime& runtime_;
  const LoaderOptions options_;
  const std::unique_ptr<StagedDataset> data_;
  const Stages stages_;
  const std::vector<BatchShape> shapes_;
  const Position start_;
  const bool completes_index_;  // else shards of stages before the first one would be read for nothing else
  const std::shared_ptr<CachedStore> cached_;  // that shards are read through to index them; null: there is no cache

  // Used by the consumer alone.
  uint64_t stage_ = 0;   // being delivered; as Opened::stage
  uint64_t before_ = 0;  // samples of the stages before
  std::shared_ptr<const Dataset> dataset_;
  std::optional<Opened> next_;    // taken from the thread, and not entered yet
  Entry entry_;                   // of next_, and of what the thread is opening
  bool entered_ = false;          // anything
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
