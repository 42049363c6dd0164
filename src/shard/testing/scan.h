#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/crypto.h"
#include "shard/field_value.h"
#include "shard/shard_scanner.h"

/// Scans of whole shards, for tests and fuzzers.

namespace millrace::testing {

struct Scanned {
  std::vector<ShardSample> samples;
  absl::Status status;
};

/// Feeds a shard in chunks of that size, each in memory of its own, so that sanitizers see reads beyond its end.
inline Scanned ScanShard(std::unique_ptr<ShardScanner> scanner, std::string_view shard, size_t chunk) {
  Scanned scanned;
  const auto take = [&](const ShardSample& sample) {
    scanned.samples.push_back(sample);
    return absl::OkStatus();
  };
  for (size_t at = 0; at < shard.size() && scanned.status.ok(); at += chunk) {
    const std::string_view part = shard.substr(at, chunk);
    const std::vector<char> copy(part.begin(), part.end());
    scanned.status = scanner->Feed(AsBytes({copy.data(), copy.size()}), take);
  }
  if (scanned.status.ok()) scanned.status = scanner->Finish(take);
  return scanned;
}
inline Scanned ScanShard(DataKind kind, std::string_view shard, size_t chunk) {
  return ScanShard(MakeShardScanner(kind), shard, chunk);
}

/// Checks what must hold of any scan. Samples lie within the shard, in order, and have the checksums of their bytes.
/// Fields lie within them, in order. Values can be requested, and errors start with the offset.
inline bool IsSound(const Scanned& scanned, std::string_view shard) {
  uint64_t end = 0;
  std::string scratch;
  for (const ShardSample& sample : scanned.samples) {
    if (sample.fields.empty() || sample.span.offset < end || sample.span.end() > shard.size()) return false;
    end = sample.span.offset;
    if (Crc32c(AsBytes(shard).subspan(end, sample.span.length)) != sample.crc32c) return false;
    for (const ShardField& field : sample.fields) {
      if (field.offset < end || field.offset + field.length > sample.span.end()) return false;
      end = field.offset + field.length;
      (void)FieldValue(field.encoding, AsBytes(shard).subspan(field.offset, field.length), &scratch);
    }
    if (end != sample.span.end()) return false;
  }
  return scanned.status.ok() || scanned.status.message().find("offset ") == 0;
}

/// For fuzzers: aborts where a scan is not sound, or differs from one in chunks of another size.
inline void MustBeSound(absl::FunctionRef<std::unique_ptr<ShardScanner>()> make_scanner, std::string_view shard,
                        size_t chunk) {
  const Scanned scanned = ScanShard(make_scanner(), shard, chunk);
  if (!IsSound(scanned, shard)) std::abort();
  const Scanned whole = ScanShard(make_scanner(), shard, shard.size() + 1);
  if (whole.samples.size() != scanned.samples.size() || whole.status != scanned.status) std::abort();
  for (size_t i = 0; i < whole.samples.size(); ++i) {
    if (whole.samples[i].crc32c != scanned.samples[i].crc32c || whole.samples[i].key != scanned.samples[i].key)
      std::abort();
  }
}
inline void MustBeSound(DataKind kind, std::string_view shard, size_t chunk) {
  MustBeSound([kind] { return MakeShardScanner(kind); }, shard, chunk);
}

}  // namespace millrace::testing
