#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "store/store_around.h"

namespace millrace {

/// The store of tar shards that were not read when they were indexed (shard_outlines.h). It verifies, when a sample is
/// read, that its files begin where the index says: their headers lie in front of them, and have their names and sizes.
/// The headers in front of the first sample of a read are fetched with it, once while the store lives. If something
/// does not fit, all is read a second time, and then the read fails with FailedPrecondition. Samples that have a CRC,
/// and all other objects, are read as by the store below.
class TarHeaderStore final : public StoreAround {
 public:
  /// Returns true if an index needs it.
  static bool IsFor(const Index& index);

  /// All arguments must outlive it and its reads. `index` has no file of labels.
  TarHeaderStore(ObjectStore& below, const DatasetPlace& data, const Index& index);

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;

 private:
  struct Read;

  absl::Status Find(const std::string& key, Read* read) const;
  void AddFiles(uint64_t sample, const IndexedSample& entry, uint64_t* end, Read* read) const;
  absl::StatusOr<uint64_t> FirstSample(uint32_t object, uint64_t offset) const;
  bool IsKnown(uint64_t sample) const;
  void Learn(uint64_t sample);

  const std::string prefix_;   // of the keys of objects
  const std::string command_;  // that reads the shards
  const Index& index_;
  std::vector<std::atomic<uint64_t>> known_;  // a bit for each sample: the headers in front of it were verified
};

}  // namespace millrace
