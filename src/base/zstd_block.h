#pragma once

#include <optional>
#include <span>

#include "base/buffer.h"
#include "base/bytes.h"

namespace millrace {

/// Returns the pieces, one after the other, as one zstd frame (RFC 8878) at the fastest level. Returns nullopt if that
/// is not at least an eighth smaller, or there is no memory for it.
std::optional<Buffer> CompressBlock(std::span<const ByteSpan> pieces);

/// Decompresses a zstd frame into `out`. False: the bytes are no such frame, or what is in it is not as long as `out`.
bool DecompressBlock(ByteSpan packed, MutableByteSpan out);

}  // namespace millrace
