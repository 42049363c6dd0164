// Arbitrary bytes as a JPEG: what is read of the tiles alone must be what is read of all of it, and adding tiles must
// not change a pixel. The first four bytes choose the crop, and whether it is reduced.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/waiting_budget.h"
#include "decode/decode_memory.h"
#include "decode/image.h"
#include "decode/reencode.h"

namespace {

using millrace::ByteSpan;
using millrace::JpegReading;

absl::Status DecodeTo(ByteSpan encoded, JpegReading reading, const millrace::Frame& frame, int reduction,
                      std::vector<std::byte>* out) {
  millrace::ImageSpec spec;
  spec.height = std::max(1, (frame.crop.bottom - frame.crop.top) / reduction);
  spec.width = std::max(1, (frame.crop.right - frame.crop.left) / reduction);
  out->assign(spec.bytes(), std::byte{0});
  millrace::WaitingBudget own(millrace::DecodeMemory::kLeastRefusedBytes);
  millrace::DecodeMemory memory(own, 0);
  return millrace::ImageDecoder(&memory, reading).DecodeLike(encoded, spec, frame, *out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const ByteSpan encoded = std::as_bytes(std::span(data + 4, size - 4));
  const absl::StatusOr<millrace::ImageSize> image = millrace::ReadImageSize(encoded);
  if (!image.ok() || int64_t{image->width} * image->height > 100'000) return 0;
  millrace::Frame frame{*image, {}};
  frame.crop.left = data[0] * image->width / 256;
  frame.crop.top = data[1] * image->height / 256;
  frame.crop.right = frame.crop.left + 1 + data[2] * (image->width - frame.crop.left - 1) / 256;
  frame.crop.bottom = frame.crop.top + 1 + data[3] * (image->height - frame.crop.top - 1) / 256;
  frame.crop.x = frame.crop.left;
  frame.crop.y = frame.crop.top;
  frame.crop.width = frame.crop.right - frame.crop.left;
  frame.crop.height = frame.crop.bottom - frame.crop.top;
  const int reduction = 1 + data[0] % 5;
  std::vector<std::byte> all;
  std::vector<std::byte> parts;
  const bool whole = DecodeTo(encoded, JpegReading::kAll, frame, reduction, &all).ok();
  const bool part = DecodeTo(encoded, JpegReading::kNeeded, frame, reduction, &parts).ok();
  if (whole && (!part || all != parts)) __builtin_trap();
  const auto tiled = millrace::ReencodeImage(encoded, {.jpeg_tiles = true});
  if (whole && tiled.ok() && tiled->has_value()) {
    if (!DecodeTo(millrace::AsBytes(**tiled), JpegReading::kNeeded, frame, reduction, &parts).ok() || all != parts) {
      __builtin_trap();
    }
  }
  (void)millrace::ReencodeImage(encoded, {.shorter_side = 1 + data[0] % 64});
  return 0;
}
