#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/lister.h"

namespace millrace::cli {

/// The objects below a folder in order of keys, one by one. Markers of empty folders are passed over. Not thread-safe;
/// `store` must outlive the calls it makes.
class KeyStream {
 public:
  /// `below` is "" or ends with '/'. With `may_lack` a missing bucket or folder is an empty one.
  KeyStream(ObjectStore& store, std::string below, bool may_lack)
      : store_(store), below_(std::move(below)), may_lack_(may_lack), lister_(store, below_) {}

  /// The next object, owned by the stream until the next call; null at the end. DataLoss when the store does not list
  /// in order: a comparison of two listings would give wrong results.
  absl::StatusOr<const ObjectInfo*> Peek();
  void Skip() { ++next_; }

  /// The key below the folder.
  std::string_view Name(const ObjectInfo& object) const { return std::string_view(object.key).substr(below_.size()); }

 private:
  absl::Status NextObjects();

  ObjectStore& store_;
  const std::string below_;
  const bool may_lack_;
  Lister lister_;
  std::vector<ObjectInfo> objects_;
  size_t next_ = 0;
  bool at_end_ = false;
  std::string last_;  // key of the last of objects_
};

}  // namespace millrace::cli
