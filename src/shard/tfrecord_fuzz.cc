#include <algorithm>
#include <cstdint>
#include <string>

#include "shard/testing/scan.h"
#include "shard/tfrecord_format.h"

// The input is a shard, after one byte that sets the size of the chunks. When it is odd, lengths and checksums are
// repaired first. A fuzzer cannot guess them, and the code that follows must hold without their help.

namespace {

using namespace millrace;  // NOLINT

void Repair(std::string& shard) {
  constexpr uint64_t kFrame = kTfRecordHeadBytes + kTfRecordFootBytes;
  for (size_t at = 0; shard.size() - at >= kFrame;) {
    const uint64_t length = std::min<uint64_t>(LoadLe<uint16_t>(shard.data() + at), shard.size() - at - kFrame);
    StoreLe(shard.data() + at, length);
    StoreLe(shard.data() + at + 8, MaskedCrc32c(AsBytes(shard).subspan(at, 8)));
    const uint64_t data = at + kTfRecordHeadBytes;
    StoreLe(shard.data() + data + length, MaskedCrc32c(AsBytes(shard).subspan(data, length)));
    at = data + length + kTfRecordFootBytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string shard(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) Repair(shard);
  testing::MustBeSound(DataKind::kTfRecord, shard, 1 + data[0] * size_t{7});
  return 0;
}
