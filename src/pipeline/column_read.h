#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "pipeline/subset.h"
#include "shard/field_value.h"

namespace millrace {

struct ColumnValue {
  FieldType type = FieldType::kBytes;
  std::string value;
};

/// These are the maximal bytes of a value. Larger ones are refused: a column is for choosing samples, not for reading
/// them.
inline constexpr uint64_t kMaxColumnValueBytes = uint64_t{64} << 10;

/// Returns the values of a field of all samples of `of`, in their order; nullopt for a sample that lacks the field.
/// Values in the index (columns of manifests and of files of labels, class folders) cost no request. For the others,
/// the bytes of the field alone are read, many at a time. They cannot be verified, since the index keeps one checksum
/// for a whole sample. Blocking. InvalidArgument if there is no such field in the data set, or if a value is too large.
/// DataLoss if a value cannot be parsed. FailedPrecondition if an object was replaced. Cancelled soon after a stop is
/// requested. Other errors are those of the store.
absl::StatusOr<std::vector<std::optional<ColumnValue>>> ReadColumn(const Subset& of, std::string_view field,
                                                                   MemoryBudget& memory,
                                                                   const std::stop_token& stop = {});

/// Calls `each` with the entries of the samples of `of`, in order.
absl::Status ScanSubset(const Subset& of, absl::FunctionRef<void(uint64_t sample, const IndexedSample& entry)> each);

}  // namespace millrace
