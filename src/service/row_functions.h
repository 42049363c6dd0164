#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pipeline/batch_source.h"

namespace millrace {

/// This entry of a batch has what a function has made of its rows.
inline constexpr std::string_view kFunctionEntry = "__row__";

/// Describes a function that the trainer's program applies to each sample, and that workers apply in its place.
struct RowFunction {
  std::string name;            // "module:function"
  std::string uri;             // of the data, as messages name them
  bool wants_tensors = false;  // torch's, in place of arrays
  uint64_t most_bytes = 0;     // of what it makes of a batch

  // Random numbers are a function of these fields and of the sample.
  uint64_t seed = 0;
  bool is_mix = false;
  uint64_t rank = 0;  // of the trainer
  uint64_t world = 1;
  uint64_t streams = 1;  // of the trainer
  uint64_t stream = 0;
};

/// Runs functions for a worker. Its process runs them as they are: nothing keeps them from anything. Thread-safe.
class RowFunctions {
 public:
  virtual ~RowFunctions() = default;

  /// Returns FailedPrecondition, with the reason, if this worker does not run the function. May take long: it imports
  /// the module.
  virtual absl::Status Check(const RowFunction& function) = 0;
  /// Returns the function's result for each row of a batch that begins at `consumed` of its epoch. A result is bytes
  /// that the trainer's program understands, and is never empty. An exception of the function is one of these results.
  /// Returns FailedPrecondition if the results are too large.
  virtual absl::StatusOr<std::vector<std::string>> Apply(const RowFunction& function, const BatchShape& shape,
                                                         uint64_t consumed, Batch batch) = 0;
};

/// Returns whether an array says which samples a batch holds, and is therefore delivered with the results of a
/// function.
inline bool IsOriginArray(std::string_view name) {
  return name == "valid" || name == "sample" || name == "part" || name == "row";
}

}  // namespace millrace
