#pragma once

#include <stop_token>
#include <string>

#include "base/status.h"

/// Parquet files, whose columns are read by Apache Arrow: in a Python process, since its library is not among Debian's
/// packages, and part of every Python that has pyarrow. parquet_to_mds.py is the program.

namespace millrace {

/// What a Parquet file is made into.
struct ParquetTarget {
  std::string folder;  // must be there
  std::string name;    // of the shards: NAME.00000.mds and so on; those that are there are replaced
  std::string key;     // of the samples: KEY/00000000 and so on
};

/// Makes MDS shards of a local Parquet file, whole and durable ones or none, by the Python that MILLRACE_PYTHON names,
/// else `python3`; what an earlier call has left of them is replaced. One at a time for a target. The process takes
/// memory for a row group, or a part of one, beside any budget. FailedPrecondition without Python or pyarrow, with the
/// remedy; InvalidArgument for what it cannot make of the file; Cancelled soon after a stop. Blocks.
absl::Status ParquetToMds(const std::string& file, const ParquetTarget& target, const std::stop_token& stop);

/// Whether an earlier call has made all of them, and they are there with their sizes and as many rows as it has made.
bool HasParquetShards(const ParquetTarget& target);

}  // namespace millrace
