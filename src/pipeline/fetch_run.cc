#include "pipeline/fetch_run.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

absl::StatusOr<FetchRun::Part> PartOf(const Index& index, const Selection* selection, uint64_t rank,
                                      IndexedSample* scratch) {
  RETURN_IF_ERROR(index.Lookup(selection != nullptr ? selection->At(rank) : rank, scratch));
  return FetchRun::Part{{rank, 0, 0, scratch->span.length}, scratch->span, scratch->crc32c, {}};
}

absl::StatusOr<FetchRun::Part> PartOf(const TokenRows& rows, const RowGroup& group, PieceOfRow of,
                                      IndexedSample* scratch) {
  const RowPiece& piece = group.Row(of.rank - group.first_row)[of.piece];
  ASSIGN_OR_RETURN(const TokenRows::Place place, rows.Find(piece, scratch));
  return FetchRun::Part{{of.rank, of.piece, place.skip, place.bytes}, place.span, place.crc32c, {}};
}

// Grows a run around its first part.
class RunBuilder {
 public:
  RunBuilder(uint32_t object, const FetchRun::Part& own, uint64_t max_gap, uint64_t max_bytes)
      : covered_(own.span), max_gap_(max_gap), max_bytes_(max_bytes) {
    run_.object = object;
    run_.parts.push_back(own);
  }

  // False where a gap, the object or the bound ends the run.
  bool Add(uint32_t object, const FetchRun::Part& part) {
    if (object != run_.object) return false;
    const uint64_t begin = std::min(covered_.offset, part.span.offset);
    const uint64_t end = std::max(covered_.end(), part.span.end());
    const uint64_t gap = part.span.offset >= covered_.end()   ? part.span.offset - covered_.end()
                         : part.span.end() <= covered_.offset ? covered_.offset - part.span.end()
                                                              : 0;
    if (gap > max_gap_ || end - begin > max_bytes_) return false;
    covered_ = {begin, end - begin};
    run_.parts.push_back(part);
    return true;
  }

  FetchRun Finish() {
    // A sample without bytes lies where the next one does, and before it.
    std::stable_sort(run_.parts.begin(), run_.parts.end(), [](const auto& a, const auto& b) {
      return a.span.offset != b.span.offset ? a.span.offset < b.span.offset : a.span.length < b.span.length;
    });
    return std::move(run_);
  }

 private:
  FetchRun run_;
  ByteRange covered_;
  const uint64_t max_gap_;
  const uint64_t max_bytes_;
};

// Pieces of one sample that is fetched whole are one part.
void ShareSpans(FetchRun* run) {
  std::vector<FetchRun::Part> parts;
  for (FetchRun::Part& part : run->parts) {
    if (!parts.empty() && parts.back().span == part.span) {
      parts.back().others.push_back(part);
    } else {
      parts.push_back(std::move(part));
    }
  }
  run->parts = std::move(parts);
}

}  // namespace

absl::StatusOr<FetchRun> RunAround(const Index& index, const Selection* selection, uint64_t extent, uint64_t rank,
                                   uint64_t max_bytes, absl::FunctionRef<bool(uint64_t)> wanted) {
  IndexedSample scratch;
  ASSIGN_OR_RETURN(const FetchRun::Part own, PartOf(index, selection, rank, &scratch));
  RunBuilder run(scratch.object, own, kMaxGapBytes, max_bytes);
  const uint64_t first = rank - rank % extent;
  const uint64_t last = std::min(first + extent, selection != nullptr ? selection->size() : index.size());  // one past
  const auto try_add = [&](uint64_t candidate) -> absl::StatusOr<bool> {
    if (!wanted(candidate)) return true;
    ASSIGN_OR_RETURN(const FetchRun::Part part, PartOf(index, selection, candidate, &scratch));
    return run.Add(scratch.object, part);
  };
  for (uint64_t next = rank + 1; next < last; ++next) {
    ASSIGN_OR_RETURN(const bool go_on, try_add(next));
    if (!go_on) break;
  }
  for (uint64_t next = rank; next-- > first;) {
    ASSIGN_OR_RETURN(const bool go_on, try_add(next));
    if (!go_on) break;
  }
  return run.Finish();
}

absl::StatusOr<FetchRun> RunAroundPiece(const TokenRows& rows, std::shared_ptr<const RowGroup> of_row, uint64_t extent,
                                        PieceOfRow own, uint64_t max_bytes, absl::FunctionRef<bool(uint64_t)> wanted,
                                        absl::FunctionRef<bool(PieceOfRow)> asked) {
  IndexedSample scratch;
  const RowGroup& group = *of_row;
  ASSIGN_OR_RETURN(const FetchRun::Part first, PartOf(rows, group, own, &scratch));
  RunBuilder run(scratch.object, first, kMaxPieceGapBytes, max_bytes);
  std::vector<std::optional<bool>> takes(group.rows());
  const auto try_add = [&](const RowGroup::Stored& stored) -> absl::StatusOr<bool> {
    const PieceOfRow other{group.first_row + stored.row, stored.piece - group.begins[stored.row]};
    std::optional<bool>& take = takes[stored.row];
    if (!take) take = other.rank / extent == own.rank / extent && wanted(other.rank);
    if (!*take || asked(other)) return true;
    ASSIGN_OR_RETURN(const FetchRun::Part part, PartOf(rows, group, other, &scratch));
    return run.Add(scratch.object, part);
  };
  const uint32_t place = group.places[group.begins[own.rank - group.first_row] + own.piece];
  for (uint64_t next = place + uint64_t{1}; next < group.stored.size(); ++next) {
    ASSIGN_OR_RETURN(const bool go_on, try_add(group.stored[next]));
    if (!go_on) break;
  }
  for (uint64_t next = place; next-- > 0;) {
    ASSIGN_OR_RETURN(const bool go_on, try_add(group.stored[next]));
    if (!go_on) break;
  }
  FetchRun found = run.Finish();
  ShareSpans(&found);
  found.group = std::move(of_row);
  return found;
}

}  // namespace millrace
