#include "base/zstd_block.h"

#include <zstd.h>

#include <cstring>
#include <memory>
#include <new>

namespace millrace {

std::optional<Buffer> CompressBlock(std::span<const ByteSpan> pieces) {
  size_t size = 0;
  for (const ByteSpan piece : pieces) size += piece.size();
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (context == nullptr || ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context.get(), size)) != 0) return std::nullopt;
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, 1);
  constexpr size_t kPart = 8;
  const size_t most = size - size / kPart;
  Buffer room;
  try {
    room = Buffer(most);
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  ZSTD_outBuffer out{.dst = room.data(), .size = most, .pos = 0};
  const auto feed = [&](ByteSpan piece, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{.src = piece.data(), .size = piece.size(), .pos = 0};
    for (;;) {
      const size_t left = ZSTD_compressStream2(context.get(), &out, &in, end);
      if (ZSTD_isError(left) != 0) return false;
      if (in.pos == in.size && (end == ZSTD_e_continue || left == 0)) return true;
      if (out.pos == out.size) return false;
    }
  };
  for (const ByteSpan piece : pieces) {
    if (!feed(piece, ZSTD_e_continue)) return std::nullopt;
  }
  if (!feed({}, ZSTD_e_end)) return std::nullopt;
  try {
    Buffer packed(out.pos);
    if (out.pos > 0) std::memcpy(packed.data(), room.data(), out.pos);
    return packed;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

bool DecompressBlock(ByteSpan packed, MutableByteSpan out) {
  const size_t size = ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size());
  return ZSTD_isError(size) == 0 && size == out.size();
}

}  // namespace millrace
