// Decodes arbitrary bytes: of JPEGs and PNGs, by its seeds.

#include "decode/testing/fuzz_decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::testing::DecodeArbitrary(data, size);
  return 0;
}
