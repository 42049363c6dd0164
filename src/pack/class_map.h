#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace {

/// Maps names of classes to their numbers; several names may have one number.
using ClassMap = std::map<std::string, uint64_t, std::less<>>;

/// Reads a class map: a JSON object {"name": number, ...}, or the names, one a line, numbered from 0 (empty lines are
/// passed over). InvalidArgument, with the line or the name, for other contents and for names that come twice.
absl::StatusOr<ClassMap> ParseClassMap(std::string_view text);

}  // namespace millrace
