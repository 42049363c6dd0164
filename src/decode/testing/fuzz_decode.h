#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/waiting_budget.h"
#include "decode/decode_memory.h"
#include "decode/image.h"

namespace millrace::testing {

/// Decodes arbitrary bytes. The first two bytes choose the output, so that crops, shrinking and enlarging all take
/// part. Images above a million pixels are left out, because they are slow and take no other path.
inline void DecodeArbitrary(const uint8_t* data, size_t size) {
  if (size < 2) return;
  const ByteSpan encoded = std::as_bytes(std::span(data + 2, size - 2));
  const absl::StatusOr<ImageSize> image = ReadImageSize(encoded);
  if (image.ok() && int64_t{image->width} * image->height > 1'000'000) return;
  ImageSpec spec;
  spec.height = 1 + data[0] % 64;
  spec.width = 1 + data[1] % 64;
  spec.channels = data[0] < 128 ? 3 : 1;
  spec.augment = data[1] < 128;
  spec.exif_orientation = data[0] % 2 == 0;
  spec.exact = data[0] % 3 == 0;
  if (data[1] % 5 == 0) {
    spec.channels = 1;
    spec.interpolation = Interpolation::kNearest;
    spec.numbers = true;
  }
  std::vector<std::byte> out(spec.bytes());
  WaitingBudget own(DecodeMemory::kLeastRefusedBytes);
  DecodeMemory memory(own, 0);
  ImageDecoder decoder(&memory);
  const absl::Status status = decoder.Decode(encoded, spec, data[0], out);
  // Bytes with a header that cannot be read must not decode.
  if (status.ok() && !image.ok()) __builtin_trap();
}

}  // namespace millrace::testing
