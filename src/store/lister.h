#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "store/object_store.h"

namespace millrace {

/// Lists all objects below a prefix in order of keys, a batch at a time. They are listed ahead of the reader, within a
/// bound, by as many requests at once as the store gains from (StoreTraits::lists_at_once). A store with an order of
/// its own (a directory bucket) is listed in that order. Blocking; not thread-safe. `store` must outlive it.
class Lister {
 public:
  Lister(ObjectStore& store, std::string prefix, std::stop_token stop = {});
  ~Lister();  // does not wait for requests that are in flight

  /// Returns the next objects, at least one; none at the end. Errors are those of ObjectStore::List, and Cancelled soon
  /// after a stop is requested.
  absl::StatusOr<std::vector<ObjectInfo>> Next();

 private:
  class Shared;
  const std::shared_ptr<Shared> shared_;  // with the callbacks of requests
  const std::stop_token stop_;
};

}  // namespace millrace
