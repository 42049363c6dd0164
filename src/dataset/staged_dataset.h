#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/index.h"
#include "net/runtime.h"
#include "plan/stages.h"
#include "store/stores.h"

namespace millrace {

/// A data set of shards that is listed, and whose index need not exist. For example, training begins with 10 of 1,000
/// shards, while the others are not indexed. Some of its shards can be opened at a time; an index of them is made then.
/// Shards are read for it only if they are neither in the index of the data set nor in a part of one (index_parts.h).
/// The result of reading is kept as a part. So the index of the data set needs no shard to be read once all of them
/// have been opened. All functions are blocking and not thread-safe; the Stores must outlive it.
class StagedDataset {
 public:
  /// The end of messages about data sets that are not staged.
  static constexpr std::string_view kRemedy = "use --start indexed (in Python start=\"indexed\")";

  /// Lists the shards. The options that count are skip_bad, part_bytes, index, share, progress, cache_folder and stop.
  /// Errors are those of SampleObjects. InvalidArgument if there are objects other than shards, or if a manifest lists
  /// them; the message says why the data set cannot be staged.
  static absl::StatusOr<std::unique_ptr<StagedDataset>> Open(Runtime& runtime, Stores& stores, std::string_view uri,
                                                             const OpenOptions& options = {});

  const std::string& uri() const { return uri_; }
  ObjectStore& store() const { return *place_.store; }
  const std::vector<IndexedObject>& shards() const { return shards_; }
  uint64_t total_bytes() const { return total_bytes_; }
  /// The number of samples, as notes of other programs say (shard_counts.h). 0: there are none, or they were wrong
  /// about shards that OpenSome has opened.
  uint64_t counted_samples() const;
  uint64_t listing_fingerprint() const { return fingerprint_; }
  Stages StagesOf(uint64_t seed) const;
  /// Returns the bytes of these shards, by their places in shards().
  uint64_t BytesOf(const std::vector<uint64_t>& places) const;

  /// Returns the same data set, as it was listed, for another thread.
  std::unique_ptr<StagedDataset> Again() const;
  /// Continues with another token that stops the work here. Progress is reported to `progress`, or not at all.
  void Continue(std::stop_token stop, ProgressFn progress = nullptr);
  /// Returns the token that stops the work here now.
  const std::stop_token& stop() const { return options_.stop; }

  /// Sets the store through which shards are read to index them; it is one around store(). If null, they are read from
  /// store().
  void ReadThrough(std::shared_ptr<ObjectStore> store) { through_ = std::move(store); }

  /// Opens a data set of these shards, by their places in shards(), ascending. FailedPrecondition if one of them is not
  /// the one that was listed. Other errors are those of BuildIndex. The data set reads from store().
  absl::StatusOr<std::unique_ptr<Dataset>> OpenSome(const std::vector<uint64_t>& places);
  /// Opens all of it, with its index, which is built if there is none. FailedPrecondition if its shards are not those
  /// that were listed. Other errors are those of Dataset::Open.
  absl::StatusOr<std::unique_ptr<Dataset>> OpenAll();

  /// False after a part of the index could not be kept. OpenAll reads its shards again.
  bool keeps_parts() const { return keeps_parts_; }
  /// Returns the number of shards that OpenSome has read so far to index them.
  uint64_t indexed_shards() const { return indexed_shards_; }

 private:
  StagedDataset(Runtime& runtime, Stores& stores, std::string_view uri, const OpenOptions& options)
      : runtime_(runtime), stores_(stores), uri_(uri), options_(options) {}
  StagedDataset(const StagedDataset&) = default;

  absl::Status List();
  absl::StatusOr<std::unique_ptr<Index>> IndexOfSome(const DatasetPlace& data, const std::vector<uint64_t>& places);
  absl::Status Check(const Index& index, const std::vector<uint64_t>& places) const;
  void CheckCounts(const Index& index, const std::vector<uint64_t>& places);

  Runtime& runtime_;
  Stores& stores_;
  const std::string uri_;
  OpenOptions options_;
  DatasetPlace place_;
  std::shared_ptr<ObjectStore> through_;
  std::vector<IndexedObject> shards_;
  std::vector<uint64_t> counts_;  // of samples, for each of shards_; or empty
  uint64_t total_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  uint64_t indexed_shards_ = 0;
  bool keeps_parts_ = true;
};

}  // namespace millrace
