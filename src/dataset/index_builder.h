#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "dataset/build_report.h"
#include "dataset/dataset.h"
#include "dataset/dataset_place.h"
#include "dataset/index_reuse.h"
#include "dataset/index_writer.h"
#include "dataset/manifest_set.h"
#include "dataset/part_collector.h"
#include "net/runtime.h"
#include "shard/token_format.h"
#include "store/stores.h"

namespace millrace {

/// Makes the place for an index; called once there is something to index, so that a wrong URI leaves no trace.
using OpenIndexFn = absl::FunctionRef<absl::StatusOr<std::unique_ptr<ObjectWriter>>()>;

/// Chooses shards by their number in index order.
using ChooseShard = std::function<bool(uint64_t number, const IndexedObject& shard)>;

/// True if data of that kind are shards, of which an index can be built in parts.
bool AreShards(DataKind kind);

struct BuildOptions {
  ProgressFn progress;  // counts bytes
  /// An older index of the data, which TellsAll() and was verified: objects that it has as they are now (key, size,
  /// ETag) are not read again; of plain arrays those that it has cut by the same `tokens`. Null: all are read.
  const Index* reuse = nullptr;
  /// Indexes of parts of the data set, of which the same holds. If several have an object, the first counts, after
  /// `reuse`.
  std::vector<const Index*> parts = {};
  /// Gets indexes of the shards that were read, while others are still being read. One is made whenever `part_bytes` of
  /// shards, and 1/64 of the data, have been read. One of the rest is made at the end, with `only`. Its errors end
  /// the build. Null, and data that are no shards: none are made.
  KeepPart keep_part = nullptr;
  uint64_t part_bytes = uint64_t{1} << 30;
  /// Only these shards are read and indexed, which may be none. InvalidArgument for data that are no shards,
  /// ResourceExhausted if a part does not fit into the budget. Null: all data.
  ChooseShard only = nullptr;
  /// What counts as unchanged; null: IndexReuse's default.
  SameVersion same = nullptr;
  /// The reads of raw objects. With `classes`, shards that have some are read, whatever `outlines` is. If `reuse` has
  /// classes that were read from files, these are read in any case, so that all samples have theirs.
  RawReads raw = {};
  /// Whether objects that `reuse` does not have may be read; else the first of them is an error: FailedPrecondition.
  bool reads = true;
  /// True: the samples of shards may be found by the notes of other programs (ShardOutlines). They have no CRCs and
  /// labels then.
  bool outlines = false;
  /// The data set is what this manifest lists, and `data` its place(). Null: what lies below `data`.
  const ManifestSamples* manifest = nullptr;
  /// The data are plain arrays, which are to be cut so. None of a manifest, whose objects are samples as they are.
  std::optional<TokenArrays> tokens = std::nullopt;
  /// A shard that is corrupt or truncated loses its samples from the first bad place on (with the one that is not known
  /// to be whole before it), and is reported and marked as incomplete in the index; else it is an error. A pair of
  /// token files that is damaged or does not fit together loses all. What cannot be fetched undamaged, though the store
  /// has it, is an error in any case.
  bool skip_bad = false;
  std::vector<std::string> class_names = {};  // Index::own_class_names() of shards; without `reuse`, which has its own
  std::stop_token stop;
};

struct BuiltIndex {
  IndexSummary summary;  // a manifest is not counted as an object: it holds no samples
  BuildReport report;
};

/// Lists the whole data set, reads its shards and token files, and writes its index, which is the same for the same
/// data, whatever the number of threads, and whether or not a part of it was taken from an older index (which may know
/// more of raw objects). Reads run in parallel and ahead; parsing and checksums, at several GB/s, follow in index order
/// on the calling thread: memory is the read-ahead's window and 1/16 of the budget.
///
/// Errors: NotFound (no bucket or no samples), InvalidArgument (tar and other files mixed, a sample that breaks the
/// rules), DataLoss (truncated or corrupt shard: object, offset, reason; or nothing but such shards, with skip_bad),
/// FailedPrecondition (an object was replaced while it was read), Cancelled (soon after `stop` is requested).
absl::StatusOr<BuiltIndex> BuildIndex(Runtime& runtime, const DatasetPlace& data, OpenIndexFn open_index,
                                      const BuildOptions& options);

}  // namespace millrace
