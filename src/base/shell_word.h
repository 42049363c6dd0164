#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// The text as one word of a POSIX shell, quoted if need be.
std::string ShellWord(std::string_view text);

}  // namespace millrace
