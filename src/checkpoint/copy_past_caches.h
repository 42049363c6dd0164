#pragma once

#include "base/bytes.h"

namespace millrace {

/// Copies bytes that nobody looks at soon, between memory that does not overlap. The destination has the same size. It
/// is not read into the caches first, as plain copies do unless they are very large. This saves a third of the traffic,
/// and the contents of the caches stay there.
void CopyPastCaches(MutableByteSpan into, ByteSpan from);

}  // namespace millrace
