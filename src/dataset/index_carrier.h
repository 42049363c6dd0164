#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
#include "dataset/index.h"
#include "net/runtime.h"
#include "store/object_store.h"
#include "store/stores.h"

namespace millrace {

/// Brings the indexes of data sets along when folders or prefixes are copied. The samples, their places and checksums
/// are those of the source, and only the ETags are different, so the copies need not be read.
///
/// The caller reports which version of an object became which version of its copy. This takes about 20 bytes for each,
/// for at most 12 million objects. The Runtime and the Stores must outlive it.
class IndexCarrier {
 public:
  /// Prepares for a copy of all objects below `from` to below `to`, whose prefixes are "" or end with '/'. Accesses no
  /// store yet.
  IndexCarrier(Runtime& runtime, Stores& stores, Location from, Location to);

  /// Returns true if an object of that name below the folder is the index of a data set. Such an object is carried
  /// over, not copied.
  static bool IsIndex(std::string_view name);

  /// Announces that the source may have an index of that name: beside the data or, as it is named there, in the cache
  /// folder. `listed`: it was found beside the data, so that it is a failure if it cannot be carried. The first 1,000
  /// are carried, and the report says how many are not. Not thread-safe.
  void AddIndex(std::string_view name, bool listed);

  /// Records that an object of the target was copied from an object of the source. Thread-safe.
  void AddCopy(const ObjectInfo& source, const ObjectInfo& copy);
  /// Records an object of the target that was there before and is held to be a copy, by size and time. If an index of
  /// the target knows the object, that counts more. Not thread-safe.
  void AddKept(const ObjectInfo& source, const ObjectInfo& copy);

  const Location& from() const { return from_; }

  struct Report {
    uint64_t carried = 0;
    std::vector<absl::Status> failures;  // each names the data set of the target and the remedy
  };
  /// Carries the indexes; call it once, when all is copied. `changed` says whether the target has changed. If it has
  /// not, an index of the target stays if it has the same contents as the source's. Blocking.
  Report Carry(bool changed, const std::stop_token& stop);
  /// True, after Carry, if the source has an index of that name, in any place.
  bool SourceHas(std::string_view name) const { return found_.contains(name); }

 private:
  using Hashes = absl::flat_hash_set<std::pair<uint64_t, uint64_t>>;  // of names and both ETags
  static bool AreIn(const Hashes& pairs, const std::string& below, const IndexedObject& then, const IndexedObject& now);
  absl::Status CheckKept(const std::string& below, const Index& source, const Index& target) const;
  absl::StatusOr<bool> CarryOne(const std::string& name, const DatasetPlace& source, const DatasetPlace& target,
                                bool changed, const std::stop_token& stop);
  absl::StatusOr<DatasetPlace> PlaceOf(const Location& folder, std::string_view index_name,
                                       const std::stop_token& stop);
  void CarryNamed(const std::string& name, bool changed, const std::stop_token& stop, Report* report);

  Runtime& runtime_;
  Stores& stores_;
  const Location from_;
  const Location to_;
  std::map<std::string, bool, std::less<>> indexes_;  // by name: whether it was listed
  uint64_t too_many_ = 0;                             // indexes
  std::set<std::string, std::less<>> found_;          // of indexes_
  Hashes kept_;
  bool forgot_ = false;  // there were too many copies

  std::mutex mutex_;
  Hashes copies_;
};

}  // namespace millrace
