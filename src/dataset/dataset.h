#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "dataset/index.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace {

/// Progress of long work: bytes or items done of a total (0 = not known yet). Called from any thread, at most ten times a second.
using ProgressFn = std::function<void(uint64_t done, uint64_t total)>;

struct OpenOptions {
  bool rebuild = false;      // ignore an existing index
  ProgressFn progress;       // of building
  std::string cache_folder;  // where an index is kept that cannot be stored beside the data; "" = $MILLRACE_CACHE,
                             // $XDG_CACHE_HOME/millrace or ~/.cache/millrace
};

/// A place of samples and its index. The index is looked for beside the data (`.millrace/index`), then in the cache folder; when
/// neither matches, it is built and stored. Immutable after opening; the Stores must outlive it.
class Dataset {
 public:
  /// Opens `uri`: a prefix with tar shards or with raw objects. Errors: NotFound (bucket, folder or no samples under the
  /// prefix), PermissionDenied, DataLoss (truncated shard: object, offset, reason), FailedPrecondition (an index that does not match
  /// its objects any more: says which object, and to run `millrace index`).
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(Runtime& runtime, Stores& stores, std::string_view uri,
                                                       const OpenOptions& options = {});

  const std::string& uri() const { return uri_; }
  const Index& index() const { return *index_; }
  ObjectStore& store() const { return *location_.store; }
  /// The store's key of an object of the index.
  std::string StoreKey(std::string_view object_key) const { return location_.Key(object_key); }

 private:
  Dataset() = default;
  std::string uri_;
  Location location_;
  std::unique_ptr<Index> index_;
};

}  // namespace millrace
