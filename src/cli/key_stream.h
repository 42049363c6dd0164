#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "store/completion.h"
#include "store/object_store.h"

namespace millrace::cli {

/// The objects below a folder in order of keys, one by one, with one page in hand and one on its way. Markers of empty
/// folders are passed over. Not thread-safe; `store` must outlive the calls it makes.
class KeyStream {
 public:
  /// `below` is "" or ends with '/'. With `may_lack` a missing bucket or folder is an empty one.
  KeyStream(ObjectStore& store, std::string below, bool may_lack);

  /// The next object, owned by the stream until the next call; null at the end. DataLoss when the store does not list
  /// in order: whoever compares two listings would draw wrong conclusions.
  absl::StatusOr<const ObjectInfo*> Peek();
  void Skip() { ++next_; }

  /// The key below the folder.
  std::string_view Name(const ObjectInfo& object) const { return std::string_view(object.key).substr(below_.size()); }

 private:
  void StartPage(std::string continuation);
  absl::Status NextPage();

  ObjectStore& store_;
  const std::string below_;
  const bool may_lack_;
  std::optional<Completion<absl::StatusOr<ListPage>>> coming_;
  ListPage page_;
  size_t next_ = 0;
  std::string last_;  // key of the page before
};

}  // namespace millrace::cli
