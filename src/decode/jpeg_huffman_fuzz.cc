// Arbitrary bytes as a JPEG: where our Huffman decoder finds no fault, libjpeg must find no damage with its own one,
// and make the same pixels. Where it finds one, libjpeg decides alone: the decoder of images must show the same luma.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/image.h"
#include "decode/testing/jpeg_both_ways.h"

namespace {

using millrace::testing::JpegPixels;

// Other spaces have no luma as such, and what progressive files lack is smoothed.
bool ShowsLuma(const JpegPixels& pixels) {
  return (pixels.space == JCS_GRAYSCALE || pixels.space == JCS_YCbCr) && !pixels.progressive;
}

bool IsLuma(const std::vector<uint8_t>& grey, const JpegPixels& pixels) {
  const size_t step = pixels.space == JCS_GRAYSCALE ? 1 : 3;
  for (size_t i = 0; i < grey.size(); ++i) {
    if (grey[i] != pixels.bytes[step * i]) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::testing::ReadJpegPixels;
  static millrace::JpegHuffman huffman;
  static millrace::ImageDecoder decoder;
  const millrace::ByteSpan encoded = std::as_bytes(std::span(data, size));
  const JpegPixels theirs = ReadJpegPixels(encoded, 1, nullptr, 100'000);
  const JpegPixels ours = ReadJpegPixels(encoded, 1, &huffman, 100'000);
  if (ours.sure && (!theirs.ok || theirs.bytes != ours.bytes)) __builtin_trap();
  constexpr int kMostSide = 16'384;                    // of an output
  const bool is_image = theirs.ok && data[2] == 0xFF;  // else a file is not taken for a JPEG
  if (!is_image || !ShowsLuma(theirs) || theirs.size.width > kMostSide || theirs.size.height > kMostSide) return 0;
  millrace::ImageSpec spec;
  spec.height = theirs.size.height;
  spec.width = theirs.size.width;
  spec.channels = 1;
  std::vector<uint8_t> grey(spec.bytes());
  if (!decoder.Decode(encoded, spec, 0, std::as_writable_bytes(std::span(grey))).ok()) __builtin_trap();
  if (!IsLuma(grey, theirs)) __builtin_trap();
  return 0;
}
