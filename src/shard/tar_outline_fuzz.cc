#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/number.h"
#include "shard/tar_outline.h"

// The input is the number of bytes of an index in four digits, the index, and a shard. Checksums of headers are
// repaired first, as for tar_fuzz.

namespace {

constexpr size_t kBlock = 512;
constexpr size_t kDigits = 4;

void RepairChecksums(std::string& shard) {
  for (size_t at = 0; at + kBlock <= shard.size(); at += kBlock) {
    if (shard.compare(at + 257, 5, "ustar") != 0) continue;
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(shard[at + i]);
    for (int digit = 5; digit >= 0; --digit, sum >>= 3) shard[at + 148 + digit] = static_cast<char>('0' + (sum & 7));
    shard[at + 154] = '\0';
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::optional<size_t> index_bytes = ParseNumber<size_t>(input.substr(0, kDigits));
  if (!index_bytes || *index_bytes + kDigits > size) return 0;
  const std::string index(input.substr(kDigits, *index_bytes));
  std::string shard(input.substr(kDigits + *index_bytes));
  RepairChecksums(shard);
  const ByteSpan bytes = AsBytes(shard);
  const uint64_t ends = std::min(kMaxTarGapBytes, bytes.size());
  uint64_t end = 0;
  const auto check = [&](const ShardSample& sample) {
    // The samples lie within the shard, in order.
    if (sample.fields.empty() || sample.span.offset < end || sample.span.end() > shard.size()) std::abort();
    for (const ShardField& field : sample.fields) {
      if (field.offset < end || field.length > shard.size() - field.offset) std::abort();
      (void)FitsTarMember(bytes.subspan(end, field.offset - end), {sample.key, field.name}, field.length);
      end = field.offset + field.length;
    }
    if (end != sample.span.end()) std::abort();
    return absl::OkStatus();
  };
  (void)OutlineTar(index, {.shard_bytes = shard.size(), .head = bytes.first(ends), .tail = bytes.last(ends)}, check);
  return 0;
}
