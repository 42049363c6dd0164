#pragma once

#include <deque>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "dataset/index_reuse.h"
#include "dataset/sample_objects.h"
#include "store/completion.h"

namespace millrace {

/// The objects of a data set that hold samples, as their source lists them, each with what must be known before it is
/// read in pieces (store/learn.h): the HEADs that this takes are in flight some objects ahead, side by side. Those that
/// an older index knows need none. Blocking; not thread-safe.
class ObjectsAhead {
 public:
  struct Object {
    IndexedObject indexed;
    ObjectInfo info;                 // of the store, with its key there
    std::optional<uint32_t> reused;  // its number in the older index, which has it as it is now
  };

  /// Objects of up to `piece_bytes` are read in one piece: nothing is asked about them. `reuse` may be null.
  ObjectsAhead(const Location& data, ObjectSource& listing, uint64_t piece_bytes, IndexReuse* reuse,
               std::stop_token stop)
      : data_(data), listing_(listing), piece_bytes_(piece_bytes), reuse_(reuse), stop_(std::move(stop)) {}

  /// The next object; nullopt after the last. Errors are those of the source, IndexReuse::Find and HEAD; Cancelled
  /// soon after a stop.
  absl::StatusOr<std::optional<Object>> Next();

  /// As the source has them.
  DataKind kind() const { return listing_.kind(); }
  uint64_t total_bytes() const { return listing_.total_bytes(); }
  const std::vector<std::string>& companions() const { return listing_.companions(); }

 private:
  struct Coming {
    Object object;
    std::optional<Completion<absl::StatusOr<ObjectInfo>>> learnt;
  };
  absl::Status LookAhead();
  void Learn(Coming* coming);
  void SettlePair(Coming* coming);

  const Location& data_;
  ObjectSource& listing_;
  const uint64_t piece_bytes_;
  IndexReuse* const reuse_;
  const std::stop_token stop_;
  std::deque<Coming> coming_;
  std::set<std::string> reused_idx_;  // keys of those whose .bin was handed out as reused
  bool listed_all_ = false;
};

}  // namespace millrace
