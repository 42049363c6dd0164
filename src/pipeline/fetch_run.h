#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "dataset/index.h"

namespace millrace {

/// Neighbouring samples of one object that one request fetches.
struct FetchRun {
  struct Part {
    uint64_t sample = 0;
    ByteRange span;
    uint32_t crc32c = 0;
  };
  uint32_t object = 0;
  std::vector<Part> parts;  // in order of offset; never empty

  ByteRange range() const { return {parts.front().span.offset, parts.back().span.end() - parts.front().span.offset}; }
};

/// Two samples are fetched by one request when at most this many bytes lie between them (headers and padding of a tar,
/// or a small sample that nobody wants).
inline constexpr uint64_t kMaxGapBytes = 4096;

/// The longest run around `sample` within its extent (`extent` consecutive samples of the index) of samples that
/// `wanted` accepts, of at most `max_bytes`, but always with `sample` itself. Pure, but for reading the index.
absl::StatusOr<FetchRun> RunAround(const Index& index, uint64_t extent, uint64_t sample, uint64_t max_bytes,
                                   absl::FunctionRef<bool(uint64_t)> wanted);

}  // namespace millrace
