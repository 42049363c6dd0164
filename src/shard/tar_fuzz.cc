#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/crypto.h"
#include "shard/tar_samples.h"

// The input is a shard, after one byte that sets the size of the chunks. Checksums of headers are repaired first: a
// fuzzer cannot guess them, and the code after them must hold without their help.

namespace {

constexpr size_t kBlock = 512;

void RepairChecksums(std::string& shard) {
  for (size_t at = 0; at + kBlock <= shard.size(); at += kBlock) {
    // Only blocks that claim to be headers are repaired.
    if (shard.compare(at + 257, 5, "ustar") != 0) continue;
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      const bool own = i >= 148 && i < 156;
      sum += own ? ' ' : static_cast<unsigned char>(shard[at + i]);
    }
    for (int digit = 5; digit >= 0; --digit, sum >>= 3) shard[at + 148 + digit] = static_cast<char>('0' + (sum & 7));
    shard[at + 154] = '\0';
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  if (size == 0) return 0;
  const size_t chunk = 1 + data[0] * size_t{37};
  std::string shard(reinterpret_cast<const char*>(data) + 1, size - 1);
  RepairChecksums(shard);
  uint64_t end = 0;
  const auto check = [&](const ShardSample& sample) {
    // Each sample lies within the shard, in order, and has the checksum of its bytes.
    if (sample.fields.empty() || sample.span.offset < end || sample.span.end() > shard.size()) std::abort();
    end = sample.span.end();
    if (Crc32c(AsBytes(shard).subspan(sample.span.offset, sample.span.length)) != sample.crc32c) std::abort();
    for (const ShardField& field : sample.fields) {
      if (field.offset < sample.span.offset || field.offset + field.length > end) std::abort();
    }
    return absl::OkStatus();
  };
  TarSampleScanner scanner;
  for (size_t at = 0; at < shard.size(); at += chunk) {
    if (!scanner.Feed(AsBytes(std::string_view(shard).substr(at, chunk)), check).ok()) return 0;
  }
  (void)scanner.Finish(check);
  return 0;
}
