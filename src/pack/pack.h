#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/dataset_place.h"
#include "decode/reencode.h"
#include "net/runtime.h"
#include "pack/class_map.h"
#include "pack/fragment.h"
#include "pack/pack_plan.h"
#include "pack/parquet.h"
#include "plan/selection.h"
#include "shard/data_kind.h"
#include "store/stores.h"

namespace millrace {

/// Is the original source, if the data set was made of another one: a scratch folder of unpacked shards differs each
/// time, while the job is the same.
struct PackOrigin {
  std::string uri;
  std::string id;                              // tells it from others, and from itself after a change
  std::map<std::string, std::string> damaged;  // its objects of which samples are lost, by what they are called now
};

struct PackOptions {
  uint64_t shard_bytes = 256 << 20;          // a shard ends before it gets larger, unless one sample is
  std::optional<uint64_t> shuffle_seed;      // shuffles the samples; absent: they keep their order
  std::optional<PackOrigin> origin;          // of the source
  DataKind format = DataKind::kTar;          // of the shards; not kRawObjects
  std::shared_ptr<const Selection> samples;  // of the source's index, those that are packed; null: all
  std::vector<FieldChoice> fields;           // what is packed, and its names; empty: all fields under their names
  bool names_for_loaders = false;            // without `fields`: the names of NamesForLoaders()
  std::optional<ClassMap> classes;           // the numbers of the class folders; absent: their places in bytewise order
  ColumnClasses class_names;  // of numbers in fields of the source; the index keeps those of what becomes `cls`
  ImageChange images;         // how images are stored again; the other fields stay as they are
  uint64_t part = 0;          // of `parts`, counted from 0: this run writes the shards that are `part`
  uint64_t parts = 1;         // modulo `parts`
  bool skip_bad = false;      // leave out samples that cannot be read or are damaged
  bool force = false;         // start again, and replace shards that are there already
  ProgressFn progress;        // bytes of the shards that this run has to write
  std::stop_token stop;       // when requested, packing ends soon with Cancelled
};

struct PackReport {
  bool complete = true;         // the data set is whole; false: other parts have shards to write
  bool already_packed = false;  // an earlier run had done it all: nothing was packed now
  uint64_t missing = 0;         // so many
  // These are counts of the whole data set if it is complete, else of the shards of this part. It does not matter which
  // run has written the shards.
  uint64_t samples = 0;
  uint64_t shards = 0;
  uint64_t shard_bytes = 0;
  uint64_t shards_kept = 0;  // of these, those that were there from an earlier run
  uint64_t index_bytes = 0;  // 0 unless complete
  std::vector<SkippedSample> skipped;
  // Keys of shards of the source that were damaged when they were indexed: their samples from there on are left out,
  // too.
  std::vector<std::string> incomplete_objects;
  uint64_t source_samples = 0;
  uint64_t without_image = 0;       // of these, those that are packed without a field that is an image
  std::string first_without_image;  // key of the first
  uint64_t lacking_fields = 0;      // likewise without one of PackOptions::fields
  std::string first_lacking_fields;
};

/// Returns InvalidArgument if one of the two places is within the other; of single objects, if one is within the
/// destination.
absl::Status CheckApart(const DatasetPlace& source, const Location& destination);

/// Writes a data set of any kind as shards `destination`/shard-000000.tar and so on, with their index. It also writes
/// the other files that readers of the format expect (index.json of MDS, .idx of RecordIO). Keys, names and values of
/// fields stay the same (the class folder of raw objects becomes the field `cls`). So the packed data set has the
/// digest of the source, unless it is shuffled. RecordIO alone keeps neither keys nor names. The same source and
/// options give the same bytes.
///
/// The place of each sample is a pure function (pack_plan.h). So shards are written side by side, and `parts` runs may
/// share the work. The next run with the same source and options continues one that ended early for any reason. The
/// last one to finish merges the index (destination.h has the protocol). Until then the destination holds
/// `.millrace/incomplete` and cannot be opened as a data set. Memory is bounded by the runtime's budget, and
/// ResourceExhausted if that is too small. MDS holds whole shards. TFRecord, RecordIO and converted fields hold whole
/// samples. All formats hold the entries of a shard's samples in the index, some hundred bytes for each.
///
/// AlreadyExists if the destination holds anything (with `force`: anything but shards). FailedPrecondition if another
/// pack was begun there (the message says what differs). Without `skip_bad` it is also FailedPrecondition if the
/// source's index lacks samples of damaged shards. InvalidArgument for samples that a shard cannot hold or tell apart,
/// and for classes without a number; both before anything is written. Other errors are those of the stores. Samples are
/// verified against the checksums of the source's index (DataLoss).
absl::StatusOr<PackReport> Pack(Runtime& runtime, Stores& stores, const Dataset& source, std::string_view destination,
                                const PackOptions& options);

}  // namespace millrace
