#pragma once

#include "base/bytes.h"

namespace millrace {

/// Returns true if Python's json.loads takes these bytes. They are UTF-8, UTF-16 or UTF-32, with or without a byte
/// order mark. NaN, Infinity, numbers that no float holds, and halves of surrogate pairs are allowed. There are at most
/// 500 levels of nesting, since the recursion of Python is bounded, too. Pure.
bool IsPythonJson(ByteSpan bytes);

}  // namespace millrace
