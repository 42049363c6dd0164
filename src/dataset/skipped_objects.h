#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

class Dataset;
struct DatasetPlace;

/// Represents an object or file below a data set's URI that holds no samples.
struct SkippedObject {
  std::string key;       // below the URI
  std::string_view why;  // "its name begins with a dot", "a document", ...
};

/// Counts the objects that indexing has passed over, and names the first kMaxNamed of them. Not thread-safe.
class SkippedObjects {
 public:
  static constexpr size_t kMaxNamed = 100'000;
  static constexpr std::string_view kCompanion = "it belongs to the shards, and holds no samples";

  /// `why` must live as long as the program.
  void Add(std::string_view key, std::string_view why);

  uint64_t count() const { return count_; }
  const std::vector<SkippedObject>& named() const { return named_; }

  struct Group {
    std::string_view why;
    uint64_t count = 0;              // of those that are named
    std::vector<std::string> first;  // names, at most the number asked for
  };
  /// Returns the named objects, by reason, in the order of the first of each.
  std::vector<Group> Grouped(size_t most_names) const;

 private:
  uint64_t count_ = 0;
  std::vector<SkippedObject> named_;
};

/// Adds the entries of a folder that are no objects (pipes, links that lead nowhere). Buckets and memory have no such
/// entries. Blocking; Cancelled soon after a stop is requested.
absl::Status AddOtherFiles(const DatasetPlace& data, const std::stop_token& stop, SkippedObjects* skipped);

/// Returns the objects that an index of the data set passes over if it is built now. A manifest lists its samples, so
/// it has no such objects. Lists the whole data set. Blocking; errors are those of listing, and Cancelled soon after a
/// stop is requested.
absl::StatusOr<SkippedObjects> ListSkipped(const Dataset& dataset, const std::stop_token& stop = {});

}  // namespace millrace
