#pragma once

#include <string_view>

namespace millrace {

/// Returns the media type of a file by its name's last extension, as web servers do: "image/jpeg"; "" if it is not
/// known.
std::string_view ContentTypeOf(std::string_view name);

}  // namespace millrace
