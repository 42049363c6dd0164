#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace millrace {

/// How many bytes zstd makes of these at its fastest level: what they hold, roughly. At most a little more than there
/// are.
uint64_t CompressedSize(ByteSpan bytes);

}  // namespace millrace
