#include "pipeline/fetch_run.h"

#include <algorithm>

namespace millrace {

namespace {

absl::StatusOr<FetchRun::Part> PartOf(const Index& index, const Selection* selection, uint64_t rank,
                                      IndexedSample* scratch) {
  RETURN_IF_ERROR(index.Lookup(selection != nullptr ? selection->At(rank) : rank, scratch));
  return FetchRun::Part{rank, scratch->span, scratch->crc32c};
}

}  // namespace

absl::StatusOr<FetchRun> RunAround(const Index& index, const Selection* selection, uint64_t extent, uint64_t rank,
                                   uint64_t max_bytes, absl::FunctionRef<bool(uint64_t)> wanted) {
  IndexedSample scratch;
  FetchRun run;
  ASSIGN_OR_RETURN(const FetchRun::Part own, PartOf(index, selection, rank, &scratch));
  run.object = scratch.object;
  run.parts.push_back(own);
  const uint64_t first = rank - rank % extent;
  const uint64_t last = std::min(first + extent, selection != nullptr ? selection->size() : index.size());  // one past

  ByteRange covered = own.span;
  // Extends the run in one direction; stops where a gap, the object or the bound ends it.
  const auto try_add = [&](uint64_t candidate) -> absl::StatusOr<bool> {
    if (!wanted(candidate)) return true;
    ASSIGN_OR_RETURN(const FetchRun::Part part, PartOf(index, selection, candidate, &scratch));
    if (scratch.object != run.object) return false;
    const uint64_t begin = std::min(covered.offset, part.span.offset);
    const uint64_t end = std::max(covered.end(), part.span.end());
    const uint64_t gap = part.span.offset >= covered.end()   ? part.span.offset - covered.end()
                         : part.span.end() <= covered.offset ? covered.offset - part.span.end()
                                                             : 0;
    if (gap > kMaxGapBytes || end - begin > max_bytes) return false;
    covered = {begin, end - begin};
    run.parts.push_back(part);
    return true;
  };
  for (uint64_t next = rank + 1; next < last; ++next) {
    ASSIGN_OR_RETURN(const bool go_on, try_add(next));
    if (!go_on) break;
  }
  for (uint64_t next = rank; next-- > first;) {
    ASSIGN_OR_RETURN(const bool go_on, try_add(next));
    if (!go_on) break;
  }
  // A sample without bytes lies where the next one does, and before it.
  std::sort(run.parts.begin(), run.parts.end(), [](const auto& a, const auto& b) {
    return a.span.offset != b.span.offset ? a.span.offset < b.span.offset : a.span.length < b.span.length;
  });
  return run;
}

}  // namespace millrace
