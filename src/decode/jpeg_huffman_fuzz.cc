// Arbitrary bytes as a JPEG: with our Huffman decoder, libjpeg must make the same pixels as with its own. What is no
// code we always refuse; libjpeg takes it for a zero where it reads fast.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "decode/testing/jpeg_both_ways.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::testing::ReadJpegPixels;
  static millrace::JpegHuffman huffman;
  const millrace::ByteSpan encoded = std::as_bytes(std::span(data, size));
  const auto theirs = ReadJpegPixels(encoded, 1, nullptr, 100'000);
  const auto ours = ReadJpegPixels(encoded, 1, &huffman, 100'000);
  if (theirs.ok && ours.ok && theirs.bytes != ours.bytes) __builtin_trap();
  if (theirs.ok == ours.ok) return 0;
  const absl::Status& status = theirs.ok ? ours.status : theirs.status;
  const std::string_view said = millrace::ToStd(status.message());
  if (theirs.ok && said.find("bad Huffman code") != said.npos) return 0;
  if (said.find("extraneous") == said.npos) __builtin_trap();
  return 0;
}
