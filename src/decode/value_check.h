#pragma once

#include "base/bytes.h"
#include "base/status.h"

/// What is known of a value before the program parses it. Pure.

namespace millrace {

/// DataLoss unless it is UTF-8.
absl::Status CheckText(ByteSpan value);

/// DataLoss unless it is JSON, where NaN, Infinity and -Infinity may stand for numbers: Python's json module writes and
/// reads them.
absl::Status CheckJson(ByteSpan value);

}  // namespace millrace
