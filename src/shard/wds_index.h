#pragma once

#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/status.h"

/// This is the text that wds2idx of NVIDIA DALI writes about a tar shard, in version 1.2: "v1.2 SAMPLES", and a line
/// for each sample with "EXTENSION OFFSET SIZE NAME" of each of its files, all with one blank between them. Offsets are
/// those of the data. Version 1.1 had no names.

namespace millrace {

/// Describes a file of a tar shard.
struct WdsMember {
  std::string_view name;
  uint64_t offset = 0;  // of its data
  uint64_t size = 0;
};

/// Calls `each` with the files, in the order of the text; ends with its first error. InvalidArgument for a text of
/// another kind, or with names that it does not hold as they are: with blanks, backslashes, or other bytes than ASCII.
absl::Status ForEachWdsMember(std::string_view text, absl::FunctionRef<absl::Status(const WdsMember&)> each);

}  // namespace millrace
