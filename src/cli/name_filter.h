#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"

/// --exclude and --include of the commands that work on many objects, with the meaning that they have for `aws s3`.

namespace millrace::cli {

struct NameFilter {
  bool include = false;
  std::string pattern;  // of the whole path below the source; wildcards cross '/'
};

/// Represents the filters in the order given.
using NameFilters = std::vector<NameFilter>;

/// Adds the options. The result tells the action of the command what was given.
std::function<NameFilters()> AddNameFilters(const Command& command);

/// The last filter that matches decides; without one the object is taken. `name` is the path below the source.
bool IsWanted(const NameFilters& filters, std::string_view name);

/// This is text for the footer of such a command; a paragraph.
inline constexpr const char* kFiltersHelp =
    "--exclude and --include take patterns of the whole path below the source, as 'aws s3' does: '*' matches any "
    "characters, '/' too, and '?' and [a-z] one character. If several patterns match, the last one counts.";

}  // namespace millrace::cli
