#include "base/compressed_size.h"

#include <zstd.h>

#include <vector>

namespace millrace {

uint64_t CompressedSize(ByteSpan bytes) {
  if (bytes.empty()) return 0;
  std::vector<char> out(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1);
  return ZSTD_isError(size) != 0 ? bytes.size() : size;
}

}  // namespace millrace
