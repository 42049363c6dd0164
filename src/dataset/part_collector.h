#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/index_writer.h"

namespace millrace {

/// Gets the bytes of an index of some whole objects of a data set, and of nothing else.
using KeepPart = std::function<absl::Status(std::string_view index)>;

/// Makes indexes of the objects that a build has finished so far, so that they are kept if the build is killed. The
/// memory comes out of the budget. Not thread-safe.
class PartCollector {
 public:
  /// `keep` may block. If the budget is too small, that is an error if the parts are `required`. Otherwise the objects
  /// since the latest part are left out.
  PartCollector(DataKind kind, MemoryBudget& memory, KeepPart keep, bool required)
      : kind_(kind), memory_(memory), keep_(std::move(keep)), required_(required) {}

  /// Adds a sample as IndexWriter does, with the same errors, and ResourceExhausted.
  absl::Status AddSample(const NewSample& sample);

  /// Ends an object. If the objects since the latest part have `part_bytes` together, they become a part, which is
  /// passed on. Errors are also those of `keep`.
  absl::Status AddObject(const IndexedObject& object, uint64_t part_bytes);

  /// Passes on what remains, if there is anything.
  absl::Status Finish();

  uint64_t kept_objects() const { return kept_objects_; }

 private:
  void Begin();
  absl::Status Drop();

  const DataKind kind_;
  MemoryBudget& memory_;
  const KeepPart keep_;
  const bool required_;
  std::string bytes_;                    // of the part; written to by writer_
  std::unique_ptr<IndexWriter> writer_;  // null: no part is begun, or it was dropped
  bool dropped_ = false;                 // until the object ends
  Reservation reservation_;
  uint64_t objects_ = 0;       // of the part
  uint64_t object_bytes_ = 0;  // of these
  uint64_t kept_objects_ = 0;
};

}  // namespace millrace
