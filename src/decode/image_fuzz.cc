// Decodes arbitrary bytes. The first two bytes choose the output, so that crops, shrinking and enlarging all take part;
// images above a million pixels are left out, because they are slow and take no other path.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "decode/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const millrace::ByteSpan encoded = std::as_bytes(std::span(data + 2, size - 2));
  const absl::StatusOr<millrace::ImageSize> image = millrace::ReadImageSize(encoded);
  if (image.ok() && int64_t{image->width} * image->height > 1'000'000) return 0;
  millrace::ImageSpec spec;
  spec.height = 1 + data[0] % 64;
  spec.width = 1 + data[1] % 64;
  spec.channels = data[0] < 128 ? 3 : 1;
  spec.augment = data[1] < 128;
  spec.exif_orientation = data[0] % 2 == 0;
  std::vector<std::byte> out(spec.bytes());
  millrace::ImageDecoder decoder;
  const absl::Status status = decoder.Decode(encoded, spec, data[0], out);
  // Bytes whose header cannot be read must not decode.
  if (status.ok() && !image.ok()) __builtin_trap();
  return 0;
}
