// Decodes arbitrary bytes that begin as a file of this format does.

#include "decode/image_format.h"
#include "decode/testing/fuzz_decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto format = millrace::SniffImageFormat(std::as_bytes(std::span(data + 2, size - 2)));
  if (format.ok() && *format == millrace::ImageFormat::kWebp) millrace::testing::DecodeArbitrary(data, size);
  return 0;
}
