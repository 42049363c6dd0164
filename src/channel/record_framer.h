#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "shard/recordio_format.h"

namespace millrace {

/// Frames bytes that come in pieces as one record of RecordIO, in the way of SageMaker's Pipe mode. The bytes stay as
/// they are, also if they hold the magic number (shard/recordio_writer.h cuts there), since the readers of that mode
/// use the lengths. A record is one part if it fits; a longer one is several.
///
/// If the length is not known before, up to kHeldBytes are held until the record ends; of a longer record each part
/// has so many bytes. Memory: that, and nothing if the length is known. Not thread-safe.
class RecordFramer {
 public:
  using Sink = absl::FunctionRef<absl::Status(ByteSpan)>;

  static constexpr uint64_t kMaxPartBytes = kRecordIoMaxLength / kRecordIoAlignment * kRecordIoAlignment;
  static constexpr uint64_t kHeldBytes = 32 << 20;

  /// Begins a new record, of so many bytes; nullopt: they are not known yet. The two limits, multiples of four, are for
  /// tests.
  explicit RecordFramer(std::optional<uint64_t> length, uint64_t max_part_bytes = kMaxPartBytes,
                        uint64_t held_bytes = kHeldBytes);

  /// Errors are those of the sink; DataLoss if more comes than the length.
  absl::Status Append(ByteSpan bytes, Sink out);
  /// Returns DataLoss if fewer bytes have come than the length.
  absl::Status End(Sink out);

 private:
  absl::Status BeginPart(uint64_t bytes, bool last, Sink out);
  absl::Status AppendKnown(ByteSpan bytes, Sink out);

  const uint64_t max_part_bytes_;
  const uint64_t held_limit_;
  std::optional<uint64_t> left_;  // of the record, if the length is known
  uint64_t part_bytes_ = 0;       // of the part
  uint64_t part_left_ = 0;        // of them, those to come; if the length is known
  bool began_ = false;            // a part was written
  std::string held_;
};

}  // namespace millrace
