#pragma once

#include <string>
#include <string_view>

/// Escapes keys in the names of tar members. Readers end a key at the first dot of its last component. They pass over a
/// folder called __like_this__ at the top. So Millrace's writers escape the dots and the underscore there. They mark
/// the archive by kTarEscapedKeys, because names of other writers may hold "%2E" as it is.

namespace millrace {

/// Turns each dot of the last component into "%2E", and "__" at the beginning into "%5F_". A text that looks escaped
/// already ("%2E", "%252E", ...) gets another "25" after its "%", so that two keys never become one.
std::string EscapeTarKey(std::string_view key);

/// Returns the key from which EscapeTarKey made this one.
std::string UnescapeTarKey(std::string_view escaped);

}  // namespace millrace
