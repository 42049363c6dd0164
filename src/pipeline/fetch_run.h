#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "dataset/index.h"
#include "plan/selection.h"

namespace millrace {

/// Neighbouring samples of one object that one request fetches.
struct FetchRun {
  struct Part {
    uint64_t rank = 0;  // of the sample, in its subset
    ByteRange span;
    uint32_t crc32c = 0;
  };
  size_t part = 0;  // of the source; left to the caller
  uint32_t object = 0;
  std::vector<Part> parts;  // in order of offset; never empty

  ByteRange range() const { return {parts.front().span.offset, parts.back().span.end() - parts.front().span.offset}; }
};

/// Two samples are fetched by one request when at most this many bytes lie between them (headers and padding of a tar,
/// or a small sample that nobody wants).
inline constexpr uint64_t kMaxGapBytes = 4096;

/// The longest run around number `rank` of the subset (`selection` of the index; null: all of it) within its extent
/// (`extent` consecutive samples of the subset) of samples that `wanted` accepts by their ranks, of at most
/// `max_bytes`, but always with the one itself. Pure, but for reading the index.
absl::StatusOr<FetchRun> RunAround(const Index& index, const Selection* selection, uint64_t extent, uint64_t rank,
                                   uint64_t max_bytes, absl::FunctionRef<bool(uint64_t)> wanted);

}  // namespace millrace
