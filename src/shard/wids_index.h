#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Describes a shard in an index JSON of WebDataset's `wids`, which says how many samples each shard has.
struct WidsShard {
  std::string url;  // absolute, or relative to the file
  uint64_t samples = 0;
};

/// Parses such an index. InvalidArgument for a text of another kind.
absl::StatusOr<std::vector<WidsShard>> ParseWidsIndex(std::string_view json);

}  // namespace millrace
