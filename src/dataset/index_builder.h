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

/// Makes the place for an index. It is called once there is something to index, so that a wrong URI leaves no trace.
using OpenIndexFn = absl::FunctionRef<absl::StatusOr<std::unique_ptr<ObjectWriter>>()>;

/// Chooses shards by their number in index order.
using ChooseShard = std::function<bool(uint64_t number, const IndexedObject& shard)>;

/// Returns true if data of that kind are shards, of which an index can be built in parts.
bool AreShards(DataKind kind);

struct BuildOptions {
  ProgressFn progress;  // counts bytes
  /// This is an older index of the data, which TellsAll() and was verified. Objects that it has as they are now (key,
  /// size, ETag) are not read again. Plain arrays are not read again if it has cut them by the same `tokens`. If null,
  /// all objects are read.
  const Index* reuse = nullptr;
  /// Indexes of parts of the data set, under the same conditions. If several have an object, `reuse` counts first, and
  /// then the first of the parts.
  std::vector<const Index*> parts = {};
  /// Gets indexes of the shards that were read, while others are still being read. A part is made whenever `part_bytes`
  /// of shards, and 1/64 of the data, have been read. With `only`, a part of the rest is made at the end. An error of
  /// keep_part ends the build. No parts are made if it is null, or if the data are no shards.
  KeepPart keep_part = nullptr;
  uint64_t part_bytes = uint64_t{1} << 30;
  /// Chooses the only shards that are read and indexed, which may be none. If null, all are. InvalidArgument for data
  /// that are no shards, ResourceExhausted if a part does not fit into the budget.
  ChooseShard only = nullptr;
  /// Decides which objects count as unchanged. If null, IndexReuse's default is used.
  SameVersion same = nullptr;
  /// These are the reads of raw objects. With `classes`, shards that have classes are read, whatever `outlines` is. If
  /// `reuse` has classes that were read from files, these are read in any case, so that all samples have theirs.
  RawReads raw = {};
  /// True if objects that `reuse` does not have may be read; else the first of them is an error: FailedPrecondition.
  bool reads = true;
  /// If true, the samples of shards may be found by the notes of other programs (ShardOutlines). They have no CRCs and
  /// labels then.
  bool outlines = false;
  /// The manifest that lists the objects of the data set; `data` is its place(). If null, the objects are those below
  /// `data`.
  const ManifestSamples* manifest = nullptr;
  /// Says how the data, which are plain arrays, are cut. nullopt for a manifest, whose objects are samples as they are.
  std::optional<TokenArrays> tokens = std::nullopt;
  /// Leaves out damaged samples; else damage is an error. A shard that is corrupt or truncated loses its samples from
  /// the first bad place on. It also loses the one before that place, which is not known to be whole. The shard is
  /// reported and marked as incomplete in the index. A pair of token files that is damaged or does not fit together
  /// loses all samples. If the store has an object undamaged and it cannot be fetched so, that is an error in any case.
  bool skip_bad = false;
  std::vector<std::string> class_names = {};  // Index::own_class_names() of shards; without `reuse`, which has its own
  std::stop_token stop;
};

struct BuiltIndex {
  IndexSummary summary;  // a manifest is not counted as an object: it holds no samples
  BuildReport report;
};

/// Lists the whole data set, reads its shards and token files, and writes its index. The index is the same for the same
/// data, whatever the number of threads is, and even if a part of it was taken from an older index. (An older index may
/// know more of raw objects.) Reads run in parallel and ahead. Parsing and checksums, at several GB/s, follow in index
/// order on the calling thread. Memory: the read-ahead's window and 1/16 of the budget.
///
/// Errors:
/// - NotFound: no bucket or no samples;
/// - InvalidArgument: tar and other files mixed, or a sample that breaks the rules;
/// - DataLoss: a truncated or corrupt shard (object, offset, reason); with skip_bad, if there are only such shards;
/// - FailedPrecondition: an object was replaced while it was read;
/// - Cancelled, soon after `stop` is requested.
absl::StatusOr<BuiltIndex> BuildIndex(Runtime& runtime, const DatasetPlace& data, OpenIndexFn open_index,
                                      const BuildOptions& options);

}  // namespace millrace
