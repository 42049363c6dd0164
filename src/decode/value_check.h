#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

/// Checks a value before the program parses it. Pure.

namespace millrace {

/// Returns the beginning of a value, in quotes, for a message: characters that are not printable ASCII become "?".
std::string QuotedValue(std::string_view value);

/// Returns DataLoss unless it is UTF-8.
absl::Status CheckText(ByteSpan value);

/// Returns DataLoss unless it is JSON as Python's json module reads it (json_grammar.h).
absl::Status CheckJson(ByteSpan value);

}  // namespace millrace
