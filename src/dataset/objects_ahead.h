#pragma once

#include <deque>
#include <optional>
#include <stop_token>

#include "dataset/sample_objects.h"
#include "store/completion.h"

namespace millrace {

/// The objects of a data set that hold samples (SampleObjects), each with what must be known before it is read in
/// pieces (store/learn.h): the HEADs that this takes are under way some objects ahead, side by side. Blocking; not
/// thread-safe.
class ObjectsAhead {
 public:
  struct Object {
    IndexedObject indexed;
    ObjectInfo info;  // of the store, with its key there
  };

  /// Objects of up to `piece_bytes` are read in one piece: nothing is asked about them.
  ObjectsAhead(const Location& data, uint64_t piece_bytes, std::stop_token stop)
      : data_(data), piece_bytes_(piece_bytes), stop_(std::move(stop)), listing_(data, stop_) {}

  /// The next object; nullopt after the last. Errors are those of SampleObjects and of HEAD; Cancelled soon after a
  /// stop.
  absl::StatusOr<std::optional<Object>> Next();

  /// As SampleObjects has them.
  DataKind kind() const { return listing_.kind(); }
  uint64_t total_bytes() const { return listing_.total_bytes(); }
  const std::vector<std::string>& companions() const { return listing_.companions(); }

 private:
  struct Coming {
    Object object;
    std::optional<Completion<absl::StatusOr<ObjectInfo>>> learnt;
  };
  absl::Status LookAhead();

  const Location& data_;
  const uint64_t piece_bytes_;
  const std::stop_token stop_;
  SampleObjects listing_;
  std::deque<Coming> coming_;
  bool listed_all_ = false;
};

}  // namespace millrace
