#include <cstdint>
#include <string>

#include "shard/testing/scan.h"

// The input is a shard, after one byte that sets the size of the chunks.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  if (size == 0) return 0;
  const std::string shard(reinterpret_cast<const char*>(data) + 1, size - 1);
  testing::MustBeSound(DataKind::kRecordIo, shard, 1 + data[0] * size_t{7});
  return 0;
}
