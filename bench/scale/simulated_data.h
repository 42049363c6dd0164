#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "dataset/dataset.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace {

/// A data set that is an index alone: tar shards of JPEGs with a class, whose bytes nobody reads.
struct DataModel {
  uint64_t samples = 1'000'000;
  uint64_t sample_bytes = 115'000;         // on average; they differ by up to a half
  uint64_t shard_bytes = 256 * 1'000'000;  // about
  uint64_t prefixes = 1;                   // folders that the shards lie in
};

/// The index of that data set in `folder`, written if it is not there yet, and opened as if the data lay on S3. Up to
/// 10,000 shards are there, too, as files without contents, since opening looks for them. Another model needs another
/// folder. `stores` were made with AsOnS3.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSimulatedData(Runtime& runtime, Stores& stores, const std::string& folder,
                                                           const DataModel& model);

/// For Stores: folders that have the traits of a bucket, as far as these decide what is fetched.
absl::StatusOr<Stores::Wrap> AsOnS3(Runtime& runtime);

}  // namespace millrace
