#pragma once

#include "base/bytes.h"

namespace millrace {

/// Copies bytes that nobody looks at soon, between memory that does not overlap: the destination, of the same size, is
/// not read into the caches first, as plain copies do unless they are very large, so that a third of the traffic is
/// saved and what is in the caches stays there.
void CopyPastCaches(MutableByteSpan into, ByteSpan from);

}  // namespace millrace
