#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/crypto.h"
#include "plan/row_table.h"

// The input is a table of rows. Its checksums are repaired first, as far as its own numbers lead: a fuzzer cannot guess
// them, and the bounds must hold without them. Whatever is read is within them.
namespace {

constexpr size_t kFootNumbers = 11 * 8;
constexpr size_t kFootBytes = kFootNumbers + 12;

void Repair(std::string* bytes) {
  using namespace millrace;
  const ByteSpan all = AsBytes(*bytes);
  StoreLe(bytes->data() + 12, Crc32c(all.first(12)));
  char* const foot = bytes->data() + bytes->size() - kFootBytes;
  std::memcpy(foot + kFootNumbers + 4, "MRPACKS\x1a", 8);
  const auto table = LoadLe<uint64_t>(foot + 80);
  for (uint64_t at = table, group = 0; at < bytes->size() && bytes->size() - at >= 8 + kFootBytes; at += 8, ++group) {
    const auto block = LoadLe<uint64_t>(bytes->data() + at);
    if (block > bytes->size() || bytes->size() - block < 8) continue;
    const uint64_t length = std::min<uint64_t>(LoadLe<uint32_t>(bytes->data() + block + 4), bytes->size() - block - 8);
    std::byte number[8];
    StoreLe(number, group);
    StoreLe(bytes->data() + block, Crc32c(all.subspan(block + 8, length), Crc32c(number)));
  }
  StoreLe(foot + kFootNumbers, Crc32c(AsBytes({foot, kFootNumbers})));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size < 16 + kFootBytes) return 0;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Repair(&bytes);
  const auto key = LoadLe<uint64_t>(bytes.data() + bytes.size() - kFootBytes);
  const absl::StatusOr<RowTable> table = RowTable::Open(AsBytes(bytes), key);
  if (!table.ok()) return 0;
  for (uint64_t number = 0; number * table->group() < table->size(); ++number) {
    const absl::StatusOr<RowGroup> group = table->ReadGroup(number);
    if (!group.ok()) continue;
    for (size_t i = 1; i < group->stored.size(); ++i) {
      const Segment& before = group->segments[group->stored[i - 1].segment];
      const Segment& here = group->segments[group->stored[i].segment];
      if (before.sample == here.sample && here.offset < before.offset + before.length) std::abort();
    }
    for (uint64_t row = 0; row < group->rows(); ++row) {
      uint64_t tokens = 0;
      for (const Segment& segment : group->Row(row)) {
        if (segment.sample >= table->samples() || segment.length == 0) std::abort();
        tokens += segment.length;
      }
      if (tokens == 0 || tokens > table->length()) std::abort();
    }
  }
  return 0;
}
