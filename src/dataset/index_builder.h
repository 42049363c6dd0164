#pragma once

#include <memory>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/index_writer.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace {

/// Makes the place for an index; called once there is something to index, so that a wrong URI leaves no trace.
using OpenIndexFn = absl::FunctionRef<absl::StatusOr<std::unique_ptr<ObjectWriter>>()>;

/// Lists and reads the whole data set and writes its index, which is the same for the same data, whatever the
/// number of threads. Reads run in parallel and ahead; parsing and checksums, at several GB/s, follow in index
/// order on the calling thread: memory is the read-ahead's window and 1/16 of the budget. Progress counts bytes.
///
/// Errors: NotFound (no bucket or no samples), InvalidArgument (tar and other files mixed, a sample that breaks the
/// rules), DataLoss (truncated or corrupt shard: object, offset, reason), FailedPrecondition (an object was
/// replaced while it was read), Cancelled (soon after `stop` is requested).
absl::StatusOr<IndexSummary> BuildIndex(Runtime& runtime, const Location& data, OpenIndexFn open_index,
                                        const ProgressFn& progress, std::stop_token stop = {});

}  // namespace millrace
