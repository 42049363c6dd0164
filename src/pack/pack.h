#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/status.h"
#include "dataset/dataset.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace {

struct PackOptions {
  uint64_t shard_bytes = 256 << 20;  // a shard ends before it gets larger, unless one sample is
  bool force = false;                // replace shards that are there already
  ProgressFn progress;               // bytes of samples
  std::stop_token stop;              // when requested, packing ends soon with Cancelled
};

struct PackReport {
  uint64_t samples = 0;
  uint64_t shards = 0;
  uint64_t shard_bytes = 0;  // of all shards together
  uint64_t index_bytes = 0;
  uint64_t without_image = 0;       // samples without a field that is an image
  std::string first_without_image;  // its key
};

/// InvalidArgument when one of the two places lies within the other.
absl::Status CheckApart(const Location& source, const Location& destination);

/// Writes a data set as WebDataset tar shards `destination`/shard-000000.tar and so on, in index order, with their
/// index. Keys, fields and bytes stay the same (the class folder of raw objects becomes the member `cls`), so the
/// packed data set has the digest of the source. The same source and options give the same bytes. Reads run ahead
/// in parallel; memory is bounded by the runtime's budget and does not depend on the sizes of samples or shards.
///
/// While it runs, and after a failure, the destination holds `.millrace/incomplete` and cannot be opened as a data set.
///
/// Errors: AlreadyExists when the destination holds anything (with `force`: anything but shards of an earlier run),
/// InvalidArgument for samples that cannot be told apart in tar (two in a row with one key), and those of the
/// stores. Samples are verified against the checksums of the source's index (DataLoss).
absl::StatusOr<PackReport> Pack(Runtime& runtime, Stores& stores, const Dataset& source, std::string_view destination,
                                const PackOptions& options);

}  // namespace millrace
