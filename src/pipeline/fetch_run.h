#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "dataset/index.h"
#include "pipeline/token_rows.h"
#include "plan/selection.h"
#include "s3/object.h"

namespace millrace {

/// Neighbouring samples of one object, or pieces of rows of tokens, that one request fetches. For example, one request
/// of 3 MB brings samples 7, 8 and 9 of a shard.
struct FetchRun {
  struct Unit {
    uint64_t rank = 0;   // of the sample in its subset, or of the row in its table
    uint32_t piece = 0;  // of the row
    uint64_t skip = 0;   // bytes of the part's span before its own
    uint64_t bytes = 0;  // of it
    friend bool operator==(const Unit&, const Unit&) = default;
  };
  struct Part : Unit {
    ByteRange span;
    std::optional<uint32_t> crc32c;  // of the span, where it is known
    std::vector<Unit> others;        // that want bytes of the same span: pieces of one sample
    bool whole() const { return others.empty() && bytes == span.length; }
  };
  size_t part = 0;  // of the source; left to the caller
  uint32_t object = 0;
  std::vector<Part> parts;                // in order of offset; never empty
  std::shared_ptr<const RowGroup> group;  // of all its rows; null for samples

  ByteRange range() const { return {parts.front().span.offset, parts.back().span.end() - parts.front().span.offset}; }
};

/// Returns the request for a run of that object: its range of the version that was indexed, with the checksums that the
/// index has. If there are no such checksums, and the run is all of the object, the checksum of the store counts.
GetOptions RequestFor(const FetchRun& run, const IndexedObject& object);

/// The maximal number of samples, or rows, of an extent that one run may span. So many cost more to keep account of
/// than a request does.
inline constexpr uint64_t kMaxRunItems = 16384;
/// Represents the limits that end a run.
struct RunLimits {
  uint64_t bytes = 0;             // of the run
  uint64_t gap = 0;               // bytes between two parts that are not wanted: they cost as much as one more request
  uint64_t items = kMaxRunItems;  // it lies within as many of the extent, counted from its first or a multiple
};

/// Returns the longest run around number `rank` of the subset, within its extent (`extent` consecutive samples of the
/// subset). The subset is `selection` of the index; null means all of it. The run has the samples that `wanted` accepts
/// by their ranks, within `limits`, and always the one of `rank` itself. Pure, except for reading the index.
absl::StatusOr<FetchRun> RunAround(const Index& index, const Selection* selection, uint64_t extent, uint64_t rank,
                                   const RunLimits& limits, absl::FunctionRef<bool(uint64_t)> wanted);

/// A piece of a row, by the row's number in its table.
struct PieceOfRow {
  uint64_t rank = 0;
  uint32_t piece = 0;
};
/// Returns such a run around a piece of a row. It has pieces of the rows of its group and of its extent (`extent`
/// consecutive rows), within `limits`. `wanted` accepts their rows, and they are not `asked` for yet. `group` is that
/// of the row. `wanted` is called once for a row at most.
absl::StatusOr<FetchRun> RunAroundPiece(const TokenRows& rows, std::shared_ptr<const RowGroup> group, uint64_t extent,
                                        PieceOfRow own, const RunLimits& limits,
                                        absl::FunctionRef<bool(uint64_t)> wanted,
                                        absl::FunctionRef<bool(PieceOfRow)> asked);

}  // namespace millrace
