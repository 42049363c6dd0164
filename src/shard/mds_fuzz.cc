#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "shard/mds_scanner.h"
#include "shard/testing/scan.h"

// The input is a shard, after one byte that sets the size of the chunks. When it is odd, offsets are repaired first, so
// that they ascend and end with the shard. A fuzzer hardly finds such offsets.

namespace {

using namespace millrace;  // NOLINT

void Repair(std::string& shard) {
  if (shard.size() < 8) return;
  const uint32_t samples = std::min<uint32_t>(static_cast<uint8_t>(shard[0]), (shard.size() - 8) / 4);
  StoreLe(shard.data(), samples);
  uint32_t before = 8 + 4 * samples;
  for (uint32_t i = 0; i <= samples; ++i) {
    char* const at = shard.data() + 4 + 4 * i;
    const auto end = static_cast<uint32_t>(shard.size());
    before = i == samples ? end : std::clamp(LoadLe<uint32_t>(at), before, end);
    StoreLe(at, before);
  }
}

// Samples by the head alone lie within the shard, too, in order.
void MustOutlineSoundly(const std::string& shard) {
  MdsScanner scanner;
  const absl::StatusOr<bool> whole = scanner.FeedHead(AsBytes(shard));
  if (!whole.ok() || !*whole) return;
  uint64_t end = 0;
  (void)scanner.Outline(shard.size(), [&](const ShardSample& sample) {
    for (const ShardField& field : sample.fields) {
      if (field.offset < end || field.length > shard.size() || field.offset > shard.size() - field.length) std::abort();
      end = field.offset + field.length;
    }
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string shard(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) Repair(shard);
  MustOutlineSoundly(shard);
  testing::MustBeSound(DataKind::kMds, shard, 1 + data[0] * size_t{7});
  return 0;
}
