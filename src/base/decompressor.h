#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "base/waiting_budget.h"

namespace millrace {

enum class Compression : uint8_t { kGzip, kZstd, kZlib };

/// Takes compressed bytes, in chunks of any size, and hands out the decompressed bytes: gzip (RFC 1952), zstd (RFC
/// 8878) or zlib (RFC 1950). Several members or frames one after the other are one stream, as for their command line
/// tools; zeros may follow. Checksums in the stream are verified. Memory: some hundred KB, for zstd up to 128 MiB if
/// the stream asks for such a window. Windows are part of a budget if there is one. Not thread-safe.
class Decompressor {
 public:
  using Sink = absl::FunctionRef<absl::Status(ByteSpan)>;  // gets pieces of at most 256 KiB; its errors end the work

  /// `windows` must outlive it. Feed waits until there is room for the window that a stream asks for.
  static std::unique_ptr<Decompressor> Make(Compression compression, WaitingBudget* windows = nullptr);
  virtual ~Decompressor() = default;

  /// Returns DataLoss, with the offset, if the bytes are damaged or not such a stream; ResourceExhausted for a larger
  /// window. After an error only sound_bytes() may be called. The output does not depend on how the bytes are cut into
  /// chunks, also if an error follows.
  absl::Status Feed(ByteSpan bytes, Sink out);
  /// Call it after the last byte. DataLoss if the stream is not complete.
  absl::Status Finish(Sink out);

  /// Call this after DataLoss. Returns how many of the bytes that were handed out can be trusted. If the stream was cut
  /// short, all of them can. If it is damaged, those of complete members or frames can, since damage is noticed later
  /// than where it is, often only by the checksum at the end.
  uint64_t sound_bytes() const { return sound_; }

 protected:
  /// Sends at most kWindowBytes, and fewer only at the end.
  virtual absl::Status FeedWindow(ByteSpan bytes, Sink out) = 0;
  virtual bool AtEnd() const = 0;
  absl::Status Damaged(std::string_view why) const;  // after taken_

  static constexpr size_t kWindowBytes = 64 << 10;
  uint64_t taken_ = 0;  // bytes that came in, at least
  uint64_t given_ = 0;  // that went out
  uint64_t sound_ = 0;

 private:
  std::vector<std::byte> window_;  // what has come of the next one
};

}  // namespace millrace
