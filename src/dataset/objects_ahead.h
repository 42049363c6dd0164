#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>

#include "dataset/index_reuse.h"
#include "dataset/sample_objects.h"

namespace millrace {

/// Returns the objects of a data set that hold samples, as their source lists them, each with its entry in older
/// indexes. The source is some objects ahead, because of pairs of token files, of which the .bin comes first. The two
/// files of a pair are both unchanged, or both are read. Blocking; not thread-safe.
class ObjectsAhead {
 public:
  struct Object {
    IndexedObject indexed;
    std::optional<IndexReuse::Known> reused;  // an older index has it as it is now
  };

  /// `reuse` may be null.
  ObjectsAhead(ObjectSource& listing, IndexReuse* reuse) : listing_(listing), reuse_(reuse) {}

  /// Returns the next object; nullopt after the last. Errors are those of the source and of IndexReuse::Find.
  absl::StatusOr<std::optional<Object>> Next();

  /// Returned as the source has them.
  DataKind kind() const { return listing_.kind(); }
  uint64_t total_bytes() const { return listing_.total_bytes(); }
  const std::vector<std::string>& companions() const { return listing_.companions(); }

 private:
  absl::Status LookAhead();
  void SettlePair(Object* object);

  ObjectSource& listing_;
  IndexReuse* const reuse_;
  std::deque<Object> coming_;
  std::set<std::string> reused_idx_;  // keys of those whose .bin was handed out as reused
  bool listed_all_ = false;
};

}  // namespace millrace
