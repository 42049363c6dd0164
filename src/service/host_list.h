#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Returns the hosts of a list as Slurm writes it: "node[01-03,7],gpu2" is node01, node02, node03, node7, gpu2. Several
/// brackets in a name multiply. Returns InvalidArgument for anything else, and for more than 65,536 hosts.
absl::StatusOr<std::vector<std::string>> ExpandHostList(std::string_view text);

/// Cuts a text at the commas that are not within brackets.
std::vector<std::string_view> SplitOutsideBrackets(std::string_view text);

}  // namespace millrace
