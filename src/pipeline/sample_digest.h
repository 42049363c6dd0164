#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/crypto.h"
#include "base/status.h"
#include "dataset/index.h"

namespace millrace {

/// Computes the digest of one delivered sample. The digest of an epoch is the sum over its samples modulo 2^128. So it
/// depends neither on the order in which threads finish nor on how ranks and interruptions cut the epoch.
///
/// The digest is XXH3-128 (seed 0) of: u64 epoch, u64 position, length + key, then for each field in bytewise order of
/// names: length + name and length + value (shard/field_value.h). So it does not depend on the format in which samples
/// are stored. A field that was decoded counts with the length and the pixels of each image that was made of it, in
/// place of its value. Integers are little-endian, lengths u64. Keep one a thread.
class SampleHasher {
 public:
  struct Decoded {
    std::string_view field;
    ByteSpan pixels;
  };
  /// Returns the digest; `span` holds the bytes of the sample's span. Errors are those of ValueOf.
  absl::StatusOr<Uint128> Hash(uint64_t epoch, uint64_t position, const IndexedSample& sample, ByteSpan span,
                               std::span<const Decoded> decoded = {});

 private:
  Xxh3Stream stream_;
  std::string scratch_;
};

}  // namespace millrace
