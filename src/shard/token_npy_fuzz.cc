#include <cstdint>
#include <string>

#include "shard/testing/scan.h"
#include "shard/token_scanner.h"

// The input is an .npy file, after one byte that sets the size of the chunks and of the samples.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  if (size == 0) return 0;
  const std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  const TokenArrays asked{.length = 1 + data[0] % uint64_t{16}, .type = std::nullopt};
  TokenArrays arrays;
  const auto make = [&] {
    arrays = asked;
    return TokenScanner::OfNpy(arrays);
  };
  testing::MustBeSound(make, file, 1 + data[0] * size_t{7});
  return 0;
}
