#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/dataset_place.h"
#include "net/runtime.h"
#include "pack/compressed_shards.h"
#include "pack/parquet.h"
#include "store/stores.h"

/// Shards that are compressed as a whole (train.tar.gz, shard.00000.mds.zstd), and Parquet files: their samples cannot
/// be read singly. So they are decompressed, or made into MDS shards (parquet.h), in a scratch folder before they are
/// packed.

namespace millrace {

struct UnpackOptions {
  bool skip_bad = false;  // keep what can be trusted of compressed shards that are cut short or damaged
  ProgressFn progress;    // bytes as they are stored
  std::stop_token stop;
};

/// Names a shard that was unpacked partly, or not at all.
struct UnpackDamage {
  std::string uri;
  std::string key;    // below the data's URI
  std::string plain;  // below the scratch folder
  std::string why;    // and what is kept
};

/// Writes their contents below `scratch`, which is a folder, under their names without the ending of the compression.
/// Files that an earlier run has left there are kept. So a scratch folder must belong to the `id`, and be used by one
/// process at a time (scratch_folder.h). Reads in parallel, and verifies by the checksums of the store and of the
/// compressed streams (DataLoss). With skip_bad, a truncated stream keeps all bytes before its end, and a damaged one
/// keeps the members or frames before the damaged one: these bytes depend on nothing else. The damaged ones are
/// returned, in the order of keys. A stream that decompresses to more than 1,000 times its size, and to more than 64
/// MiB, is damage of which nothing is kept. ResourceExhausted before the disk is full: a twentieth stays free. Memory:
/// out of the runtime's budget. If the budget is smaller than the window of one stream of zstd, up to 128 MiB, that
/// window comes on top.
absl::StatusOr<std::vector<UnpackDamage>> Unpack(Runtime& runtime, const Location& data, const CompressedShards& shards,
                                                 const Location& scratch, const UnpackOptions& options);

/// Returns the names of classes in the Parquet files that Unpack has made into shards: those in which all files agree.
ColumnClasses ClassesOfUnpacked(const Location& data, const CompressedShards& shards, const Location& scratch);

/// Translates messages about the scratch folder to the objects of the data set.
class UnpackedNames {
 public:
  UnpackedNames(const DatasetPlace& data, const CompressedShards& shards, std::string scratch_path);

  /// Returns the message with the URI of the object for the path of what was unpacked of it.
  std::string Translate(std::string_view message) const;

 private:
  std::string_view ObjectAt(std::string_view message, size_t* length) const;

  struct Name {
    std::string plain;  // below the scratch folder
    std::string said;
  };
  std::string data_uri_;
  std::string folder_;
  std::vector<Name> names_;
};

}  // namespace millrace
