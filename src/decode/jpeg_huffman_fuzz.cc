// Arbitrary bytes as a JPEG: where our Huffman decoder finds no fault, libjpeg must find no damage with its own one,
// and make the same pixels. Where it finds one, libjpeg decides alone: then the reader must show what it shows.

#include <cstddef>
#include <cstdint>
#include <span>

#include "decode/testing/jpeg_both_ways.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::testing::ReadJpegPixels;
  static millrace::JpegHuffman huffman;
  const millrace::ByteSpan encoded = std::as_bytes(std::span(data, size));
  const auto theirs = ReadJpegPixels(encoded, 1, nullptr, 100'000);
  const auto ours = ReadJpegPixels(encoded, 1, &huffman, 100'000);
  if (ours.sure && (!theirs.ok || theirs.bytes != ours.bytes)) __builtin_trap();
  return 0;
}
