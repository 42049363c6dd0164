#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

enum class Compression : uint8_t { kGzip, kZstd };

/// Takes compressed bytes, in chunks of any size, and hands out what they stand for: gzip (RFC 1952) or zstd (RFC
/// 8878). Several members or frames one behind the other are one stream, as for their command line tools; zeros may
/// follow. Checksums in the stream are verified. Memory: some hundred KB, for zstd up to 128 MiB where the stream asks
/// for such a window. Not thread-safe.
class Decompressor {
 public:
  using Sink = absl::FunctionRef<absl::Status(ByteSpan)>;  // gets pieces of at most 256 KiB; its errors end the work

  static std::unique_ptr<Decompressor> Make(Compression compression);
  virtual ~Decompressor() = default;

  /// DataLoss when the bytes are damaged or no such stream, ResourceExhausted for a larger window.
  virtual absl::Status Feed(ByteSpan bytes, Sink out) = 0;
  /// After the last byte: DataLoss when it was not the last one of the stream.
  virtual absl::Status Finish() = 0;
};

}  // namespace millrace
