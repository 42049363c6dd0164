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

/// Neighbouring samples of one object, or pieces of rows of tokens, that one request fetches.
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

/// The request for a run of that object: its range of the version that was indexed, with the checksums that the index
/// has. If there are no such checksums, and the run is all of the object, that of the store counts.
GetOptions RequestFor(const FetchRun& run, const IndexedObject& object);

/// Samples, or rows, of an extent that one run may span: so many cost more to keep account of than a request does.
inline constexpr uint64_t kMaxRunItems = 16384;
/// What ends a run.
struct RunLimits {
  uint64_t bytes = 0;             // of the run
  uint64_t gap = 0;               // bytes between two parts that nobody wants: they cost as much as a request more
  uint64_t items = kMaxRunItems;  // it lies within as many of the extent, counted from its first or a multiple
};

/// The longest run around number `rank` of the subset (`selection` of the index; null: all of it) within its extent
/// (`extent` consecutive samples of the subset) of samples that `wanted` accepts by their ranks,
/// within `limits`, but always with the one itself. Pure, but for reading the index.
absl::StatusOr<FetchRun> RunAround(const Index& index, const Selection* selection, uint64_t extent, uint64_t rank,
                                   const RunLimits& limits, absl::FunctionRef<bool(uint64_t)> wanted);

/// A piece of a row, by the row's number in its table.
struct PieceOfRow {
  uint64_t rank = 0;
  uint32_t piece = 0;
};
/// The same around a piece of a row, among the pieces of the rows of its group and of its extent (`extent` consecutive
/// rows), within `limits`, whose rows `wanted` accepts and that are not `asked` for yet. `group` is that of the row.
/// `wanted` is called once for a row at most.
absl::StatusOr<FetchRun> RunAroundPiece(const TokenRows& rows, std::shared_ptr<const RowGroup> group, uint64_t extent,
                                        PieceOfRow own, const RunLimits& limits,
                                        absl::FunctionRef<bool(uint64_t)> wanted,
                                        absl::FunctionRef<bool(PieceOfRow)> asked);

}  // namespace millrace
