#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Returns the text as one word of a POSIX shell, quoted if need be.
std::string ShellWord(std::string_view text);

/// Returns the words of a command line, with a space between two.
std::string ShellWords(const std::vector<std::string>& words);

}  // namespace millrace
