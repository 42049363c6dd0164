#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/decompressor.h"

// The first byte selects the format and the size of chunks. The output does not depend on how the input is cut.

namespace {

using namespace millrace;  // NOLINT

std::string Decompress(Compression compression, ByteSpan bytes, size_t chunk, bool* whole) {
  constexpr size_t kEnough = 1 << 20;
  std::string out;
  const auto decompressor = Decompressor::Make(compression);
  const auto take = [&out](ByteSpan piece) {
    out += AsText(piece);
    return out.size() > kEnough ? absl::CancelledError("enough") : absl::OkStatus();
  };
  *whole = false;
  while (!bytes.empty()) {
    const ByteSpan some = bytes.first(std::min(chunk, bytes.size()));
    bytes = bytes.subspan(some.size());
    if (!decompressor->Feed(some, take).ok()) return out;
  }
  *whole = decompressor->Finish(take).ok();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Compression compression = (data[0] & 1) != 0 ? Compression::kZstd : Compression::kGzip;
  const size_t chunk = 1 + (data[0] >> 1);
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  bool whole = false;
  bool whole_at_once = false;
  const std::string found = Decompress(compression, bytes, chunk, &whole);
  const std::string at_once = Decompress(compression, bytes, size, &whole_at_once);
  if (whole != whole_at_once || found != at_once) std::abort();
  return 0;
}
