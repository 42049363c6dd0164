#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pipeline/batch_source.h"

/// How a worker sends one batch of a stream: a head with a checksum of its own, which says what follows, then the
/// arrays of the batch as they lie in memory, one behind the other.
///
///   magic "MRF1" | u32 bytes of the facts | u64 bytes of the arrays | u32 CRC32C of facts and arrays |
///   u32 CRC32C of the 20 bytes before | facts | arrays
///
/// Integers are little-endian.

namespace millrace {

inline constexpr size_t kFrameHeadBytes = 24;

/// A batch without its arrays.
struct FrameFacts {
  uint64_t sequence = 0;  // of the stream's batches, from 0 on
  uint64_t size = 0;      // rows
  uint64_t valid = 0;
  uint64_t epoch = 0;
  bool last_of_epoch = false;
  Position position;
  Uint128 digest;
  uint64_t token_count = 0;
  uint64_t value_bytes = 0;
  std::vector<std::string> keys;
  std::vector<BatchValues> values;
  std::vector<QuarantinedSample> quarantined;
  std::vector<uint64_t> array_bytes;
};

/// The head and the facts of a batch; its arrays follow, in their order.
std::string EncodeFrame(uint64_t sequence, const Batch& batch);

/// Views of the bytes that were parsed.
struct WireBatch {
  FrameFacts facts;
  std::vector<ByteSpan> arrays;
};

/// DataLoss, with what is wrong, if the bytes are not one whole frame.
absl::StatusOr<WireBatch> ParseFrame(ByteSpan bytes);

}  // namespace millrace
