#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/crypto.h"
#include "service/frame.h"

/// The bytes after a head whose checksums are right: whatever a worker says of its batch, it is refused, or its values
/// and arrays are the rest of the frame.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size < 2) return 0;
  const size_t facts = std::min<size_t>(size - 2, data[0] | data[1] << 8);
  const std::string rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::string bytes = "MRF2";
  AppendLe(bytes, static_cast<uint32_t>(facts));
  AppendLe(bytes, static_cast<uint64_t>(rest.size() - facts));
  AppendLe(bytes, Crc32c(AsBytes(rest)));
  AppendLe(bytes, Crc32c(AsBytes(bytes)));
  bytes += rest;
  const absl::StatusOr<WireBatch> frame = ParseFrame(AsBytes(bytes));
  if (!frame.ok()) return 0;
  uint64_t contents = 0;
  for (const BatchValues& values : frame->facts.values) {
    for (const std::string& row : values.rows) contents += row.size();
  }
  for (const ByteSpan array : frame->arrays) contents += array.size();
  if (contents != rest.size() - facts) std::abort();
  return 0;
}
