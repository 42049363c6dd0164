#pragma once

#include "base/bytes.h"

namespace millrace {

/// True if Python's json.loads takes these bytes: UTF-8, UTF-16 or UTF-32, with or without a byte order mark; NaN,
/// Infinity, numbers that no float holds, and halves of surrogate pairs. Nesting is not bounded here. Pure.
bool IsPythonJson(ByteSpan bytes);

}  // namespace millrace
