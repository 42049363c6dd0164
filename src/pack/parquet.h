#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"

/// Apache Arrow reads the columns of Parquet files in a Python process. Its library is not among Debian's packages, and
/// it is part of every Python that has pyarrow. parquet_to_mds.py is the program.

namespace millrace {

/// Names the MDS shards that are made of a Parquet file.
struct ParquetTarget {
  std::string folder;  // must be there
  std::string name;    // of the shards: NAME.00000.mds and so on; those that are there are replaced
  std::string key;     // of the samples: KEY/00000000 and so on
};

/// Makes MDS shards of a local Parquet file, all of them durable, or none, by DefaultPython()
/// (base/python_child.h); leftovers of an earlier call are replaced. One at a time for a target. The process takes
/// memory for a row group, or a part of one, beside any budget. FailedPrecondition without Python or pyarrow, with the
/// remedy; InvalidArgument for columns that cannot become fields, and for rows that take more than 1,000 times the size
/// of the file and 64 MiB; ResourceExhausted before the disk is full; Cancelled soon after a stop. Blocks.
absl::Status ParquetToMds(const std::string& file, const ParquetTarget& target, const std::stop_token& stop);

/// Has the names of classes by the columns that hold their numbers: name i is that of number i.
using ColumnClasses = std::map<std::string, std::vector<std::string>>;

/// Returns the classes that the Parquet file has, as Hugging Face's datasets write them. The shards are there.
ColumnClasses ClassesOfParquet(const ParquetTarget& target);

/// Returns true if an earlier call has made all of them, and they still exist with the same sizes and numbers of rows.
bool HasParquetShards(const ParquetTarget& target);

}  // namespace millrace
