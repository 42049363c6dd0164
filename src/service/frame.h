#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pipeline/batch_source.h"
#include "service/rows_place.h"

/// Frames are how a worker sends the batches of a stream, one batch a frame. A frame begins with a head, which has a
/// checksum of its own and says what follows. Facts about the batch are next. Then come the bytes of its values, row by
/// row, and its arrays as they are in memory, one after the other.
///
/// A frame has these parts:
///   magic "MRF2" | u32 bytes of the facts | u64 bytes of values and arrays | u32 CRC32C of all three |
///   u32 CRC32C of the 20 bytes before | facts | values | arrays
///
/// Integers are little-endian.

namespace millrace {

inline constexpr size_t kFrameHeadBytes = 24;

/// Describes a batch without its arrays.
struct FrameFacts : BatchFacts {
  uint64_t sequence = 0;  // of the stream's batches, from 0 on
  std::vector<uint64_t> array_bytes;
};

uint64_t ValueBytesOf(const std::vector<BatchValues>& columns);

/// Returns the CRC32C of the values of a batch and its arrays, one after the other.
uint32_t ContentsCrc(const Batch& batch);
/// Returns head and facts of a batch, whose values and arrays, with this ContentsCrc, follow.
std::string EncodeFrame(uint64_t sequence, const Batch& batch, uint32_t crc);

/// Holds views of the bytes that were parsed.
struct WireBatch {
  FrameFacts facts;
  std::vector<ByteSpan> arrays;
  std::shared_ptr<RowsPlace> rows;  // arrays whose rows are there are empty above; null: all are above
};

/// Returns DataLoss, with what is wrong, if the bytes are not one whole frame. `crc` is that of all bytes after the
/// head, if it was made as they came.
absl::StatusOr<WireBatch> ParseFrame(ByteSpan bytes, std::optional<uint32_t> crc = std::nullopt);

/// Does the same for a frame whose rows were received into their final place. `bytes` are head, facts and values,
/// followed by the arrays that have no rows in `rows`.
absl::StatusOr<WireBatch> ParsePlacedFrame(ByteSpan bytes, std::shared_ptr<RowsPlace> rows, uint32_t crc);

/// The values of a parsed frame are copies. If they were most of its bytes, its arrays become copies, too, and
/// `memory`, which held the bytes, holds these. Bytes and values then exist at the same time only briefly.
void KeepArrays(WireBatch* frame, std::shared_ptr<void>* memory);

}  // namespace millrace
