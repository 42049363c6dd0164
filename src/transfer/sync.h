#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "store/stores.h"

namespace millrace {

/// Describes one thing that was found when two folders were compared.
struct SyncStep {
  enum class Kind {
    kCopy,    // `object` of the source is missing in the target, or other than there
    kRemove,  // `object` of the target is not in the source
    kKeep,    // it is in both
  };
  Kind kind = Kind::kKeep;
  const ObjectInfo* object = nullptr;  // valid during the call
  const ObjectInfo* kept = nullptr;    // valid during the call: the target's, if it is in both
  std::string key;                     // in the target
  std::string_view why;                // of a copy: "missing", "size differs" or "newer"
};

struct SyncOptions {
  /// Returns whether an object takes part, by its key below the folder. If it is null, all do.
  std::function<bool(std::string_view name)> wanted;
  /// Set this if what kRemove names is going to be removed. Sync then returns FailedPrecondition, before any step, if
  /// the source has nothing and the target has something. A typing mistake in a prefix makes an empty source.
  bool removes = false;
  std::stop_token stop;
};

/// Walks two folders (prefixes that are "" or end with '/') side by side, in order of keys, and calls `each` with what
/// makes `to` like `from`. Objects differ if their sizes do, or if the source is newer by the coarser of the two
/// clocks: S3 reports whole seconds. Markers of empty folders take no part. A target that is not there is an empty one,
/// unless it is a bucket.
///
/// Blocking. Ends with the first error of a listing or of `each`, and with Cancelled soon after a stop is requested.
/// DataLoss if a store does not list its keys in order.
absl::Status CompareFolders(const Location& from, const Location& to, const SyncOptions& options,
                            absl::FunctionRef<absl::Status(const SyncStep&)> each);

}  // namespace millrace
