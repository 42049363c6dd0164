#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "dataset/dataset_place.h"
#include "net/runtime.h"
#include "store/object_store.h"
#include "store/stores.h"

namespace millrace {

/// Brings the indexes of data sets along when folders or prefixes are copied: the samples, their places and checksums
/// are those of the source, and only the ETags are others, so the copies need not be read.
///
/// Told which version of an object became which version of its copy; 16 bytes each, of at most 16 million objects. The
/// Runtime and the Stores must outlive it.
class IndexCarrier {
 public:
  /// What is copied: all that lies below `from`, to below `to`, whose prefixes are "" or end with '/'. Touches nothing
  /// yet.
  IndexCarrier(Runtime& runtime, Stores& stores, Location from, Location to);

  /// Whether an object of that name below the folder is the index of a data set, which is carried over in place of
  /// being copied.
  static bool IsIndex(std::string_view name);

  /// The source may have an index of that name: beside the data or, as it is named there, in the cache folder. The
  /// first 1,000 are remembered. Not thread-safe.
  void AddIndex(std::string_view name);

  /// An object of the target is a copy of an object of the source, or is held to be one. Thread-safe.
  void AddCopy(const ObjectInfo& source, const ObjectInfo& copy);

  const Location& from() const { return from_; }

  struct Report {
    uint64_t carried = 0;
    std::vector<absl::Status> failures;  // each names the data set of the target and the remedy
  };
  /// Call it once, when all is copied. `changed`: whether the target has changed; otherwise an index stays that has the
  /// same contents as the source's. Blocking.
  Report Carry(bool changed, const std::stop_token& stop);

 private:
  absl::StatusOr<bool> CarryOne(const DatasetPlace& source, const DatasetPlace& target, bool changed,
                                const std::stop_token& stop);
  absl::StatusOr<DatasetPlace> PlaceOf(const Location& folder, std::string_view index_name,
                                       const std::stop_token& stop);
  void CarryNamed(const std::string& name, bool changed, const std::stop_token& stop, Report* report);

  Runtime& runtime_;
  Stores& stores_;
  const Location from_;
  const Location to_;
  std::set<std::string> indexes_;  // their names

  std::mutex mutex_;
  absl::flat_hash_set<std::pair<uint64_t, uint64_t>> copies_;  // hashes of names and ETags
};

}  // namespace millrace
