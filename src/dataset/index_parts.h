#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "store/stores.h"
#include "transfer/artifact.h"

namespace millrace {

/// Represents the parts of an index that is being built: indexes of some of its shards. They lie beside the place of
/// the index, as `index.part-HASH`, or in the cache folder if nothing can be put there. HASH is the hash of the bytes.
/// So several processes and machines keep theirs side by side, and two parts of the same shards do no harm. The process
/// that completes the index removes all of them. Blocking; not thread-safe; the Stores must outlive it.
class IndexParts {
 public:
  /// Takes `cache_folder` and `stop` as in OpenOptions. Accesses no store yet.
  IndexParts(Stores& stores, const DatasetPlace& data, const std::string& cache_folder, std::stop_token stop = {},
             ArtifactHome home = ArtifactHome::kBesideOrCache);

  /// Returns all parts that are sound, even if the data have changed since. A warning names the others. Errors are
  /// those of an unreachable store, and Cancelled.
  absl::StatusOr<std::vector<std::unique_ptr<Index>>> Find();

  /// Writes a part beside the data, unless the cache folder is its home. If that cannot be, it goes to the cache
  /// folder, or, if other machines need it (`for_others`), that is an error.
  absl::Status Keep(std::string_view index, bool for_others);

  /// True if a part was kept in the cache folder, since nothing can be kept beside the data. Other machines do not find
  /// it.
  bool kept_here() const { return kept_here_; }

  /// Removes all parts, unless Find has found none and none were kept since. A warning names one that stays.
  void Remove();

 private:
  absl::StatusOr<std::vector<std::string>> Hashes(ObjectStore& store, const std::string& prefix);
  absl::StatusOr<std::unique_ptr<Index>> Open(const std::string& hash, bool cached);

  Stores& stores_;
  const DatasetPlace data_;
  const std::string cache_folder_;  // "": there is none
  const std::string beside_;        // what the keys of parts begin with, beside the data
  const std::string stem_;          // what their names begin with, in the cache folder
  const std::stop_token stop_;
  const ArtifactHome home_;
  bool may_be_there_ = true;  // any part
  bool kept_here_ = false;
};

}  // namespace millrace
