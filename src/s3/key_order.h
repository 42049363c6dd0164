#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

/// Returns the least string greater than every string that starts with `prefix`; nullopt if there is none. Keys are
/// ordered bytewise, as S3 lists them.
std::optional<std::string> AfterPrefix(std::string_view prefix);

}  // namespace millrace
