#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/crypto.h"
#include "base/status.h"
#include "dataset/index.h"

namespace millrace {

/// The digest of one delivered sample; that of an epoch is the sum over its samples modulo 2^128, so it depends on
/// neither the order in which threads finish nor on how ranks and interruptions cut the epoch.
///
/// XXH3-128 (seed 0) of: u64 epoch, u64 position, length + key, then for each field in bytewise order of names: length
/// + name and length + value (shard/field_value.h), so that it does not tell in which format samples are stored.
/// Integers are little-endian, lengths u64. Keep one a thread.
class SampleHasher {
 public:
  /// `span` holds the bytes of the sample's span. The field called `decoded_field` counts with `decoded` instead of its
  /// value; empty = none. Errors are those of ValueOf.
  absl::StatusOr<Uint128> Hash(uint64_t epoch, uint64_t position, const IndexedSample& sample, ByteSpan span,
                               std::string_view decoded_field = {}, ByteSpan decoded = {});

 private:
  Xxh3Stream stream_;
  std::string scratch_;
};

}  // namespace millrace
