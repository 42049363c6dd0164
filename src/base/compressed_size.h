#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace millrace {

/// Returns how many bytes zstd makes of these at its fastest level, which shows roughly how much they hold. It is at
/// most a little more than there are.
uint64_t CompressedSize(ByteSpan bytes);

}  // namespace millrace
