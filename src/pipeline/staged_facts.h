#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/cached_store.h"
#include "dataset/staged_dataset.h"
#include "pipeline/loader.h"
#include "pipeline/loader_facts.h"

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
  uint64_t counted = 0;                    // samples of all shards, if other programs have counted them
  std::optional<CacheReport> cache;        // of reads to index the shards, if there is a cache
  double seconds = 0;                      // that this took
};

/// Opens the first stage that has samples, or that of options.start; blocking. Shards that are read for its index are
/// read through options.cache. Errors are those of SettleStaged, StagedDataset and DescribeLoader.
absl::StatusOr<StagedFacts> DescribeStaged(StagedDataset& data, const LoaderOptions& options);

/// Returns the position at which a loader with these options begins. InvalidArgument for a mix, which a staged loader
/// does not have. FailedPrecondition for a position of another listing, policy or seed. Reads nothing.
absl::StatusOr<Position> SettleStaged(const StagedDataset& data, const LoaderOptions& options);

/// Returns the options of the loader that delivers a stage, or the later epochs. In the first epoch, samples have no
/// numbers, and the last batch of a stage is padded, for other stages to complete. `before` is the number of samples of
/// the stages before it.
LoaderOptions StageOptions(const LoaderOptions& staged, uint64_t epoch, uint64_t before);

/// Describes the loader of a stage, or of the later epochs; `options` are those of StageOptions. If the memory of a
/// stage is too small for it, the error says which part of `memory` that is.
absl::StatusOr<LoaderFacts> DescribeStage(const Dataset& dataset, const LoaderOptions& options);
/// Returns an error of a later stage, with the name of the other start.
absl::Status InLaterStage(const absl::Status& status);

/// Returns the store through which shards are read to be indexed, so that they are in the cache when their samples are
/// delivered. Null if there is no cache.
std::shared_ptr<CachedStore> CacheAround(StagedDataset& data, const LoaderOptions& options);

}  // namespace millrace
