#include "pipeline/fetch_run.h"

#include <algorithm>
#include <span>
#include <utility>

namespace millrace {

namespace {

// Represents the facts about a sample that a run needs.
struct Entry {
  uint64_t rank = 0;
  uint32_t object = 0;
  ByteRange span;
  std::optional<uint32_t> crc32c;
};

// Reads entries of neighbours together: an index decodes a block of them in the time of one.
class EntryReader {
 public:
  // The index decodes this many to find the last of them.
  static constexpr uint64_t kBlock = 32;

  EntryReader(const Index& index, const Selection* selection) : index_(index), selection_(selection) {}

  // Returns the entries of ranks first .. last-1, at most kBlock; valid until the next call.
  absl::StatusOr<std::span<const Entry>> Read(uint64_t first, uint64_t last) {
    entries_.clear();
    const uint64_t first_sample = SampleAt(first);
    const uint64_t last_sample = SampleAt(last - 1);
    if (last_sample - first_sample >= kMaxScanned) return ReadEach(first, last);
    uint64_t rank = first;
    uint64_t next = first_sample;
    RETURN_IF_ERROR(index_.Scan(first_sample, last_sample + 1, [&](uint64_t sample, const IndexedSample& entry) {
      if (sample != next) return;
      Add(rank, entry);
      if (++rank < last) next = SampleAt(rank);
    }));
    return entries_;
  }

 private:
  // If members of a subset lie further apart, each is looked up.
  static constexpr uint64_t kMaxScanned = 8 * kBlock;

  uint64_t SampleAt(uint64_t rank) const { return selection_ != nullptr ? selection_->At(rank) : rank; }
  void Add(uint64_t rank, const IndexedSample& entry) {
    entries_.push_back({rank, entry.object, entry.span, entry.crc32c});
  }
  absl::StatusOr<std::span<const Entry>> ReadEach(uint64_t first, uint64_t last) {
    for (uint64_t rank = first; rank < last; ++rank) {
      RETURN_IF_ERROR(index_.Lookup(SampleAt(rank), &scratch_));
      Add(rank, scratch_);
    }
    return entries_;
  }

  const Index& index_;
  const Selection* const selection_;
  IndexedSample scratch_;
  std::vector<Entry> entries_;
};

FetchRun::Part PartOf(const Entry& entry) {
  return FetchRun::Part{{entry.rank, 0, 0, entry.span.length}, entry.span, entry.crc32c, {}};
}

absl::StatusOr<FetchRun::Part> PartOf(const TokenRows& rows, const RowGroup& group, PieceOfRow of,
                                      IndexedSample* scratch) {
  const Segment& piece = group.Row(of.rank - group.first_row)[of.piece];
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

  // Returns false if a gap, the object or the bound ends the run: then no span beyond this one fits either.
  bool Fits(uint32_t object, ByteRange span) const {
    if (object != run_.object) return false;
    const uint64_t gap = span.offset >= covered_.end()   ? span.offset - covered_.end()
                         : span.end() <= covered_.offset ? covered_.offset - span.end()
                                                         : 0;
    return gap <= max_gap_ && Around(span).length <= max_bytes_;
  }

  bool Add(uint32_t object, FetchRun::Part part) {
    if (!Fits(object, part.span)) return false;
    covered_ = Around(part.span);
    run_.parts.push_back(std::move(part));
    return true;
  }

  FetchRun Finish() {
    // A sample without bytes lies at the place of the next one, and before it.
    std::stable_sort(run_.parts.begin(), run_.parts.end(), [](const auto& a, const auto& b) {
      return a.span.offset != b.span.offset ? a.span.offset < b.span.offset : a.span.length < b.span.length;
    });
    return std::move(run_);
  }

 private:
  ByteRange Around(ByteRange span) const {
    const uint64_t begin = std::min(covered_.offset, span.offset);
    return {begin, std::max(covered_.end(), span.end()) - begin};
  }

  FetchRun run_;
  ByteRange covered_;
  const uint64_t max_gap_;
  const uint64_t max_bytes_;
};

// Represents the ranks first .. last-1.
struct Ranks {
  uint64_t first = 0;
  uint64_t last = 0;
};

// Returns the ranks in the extent of `rank` that one run with it may take: within so many, counted from the extent's
// first.
Ranks RanksNear(uint64_t rank, uint64_t extent, uint64_t items) {
  const uint64_t first_of_extent = rank - rank % extent;
  const uint64_t first = rank - (rank - first_of_extent) % items;
  return {first, std::min(first + items, first_of_extent + extent)};
}

// Joins pieces of one sample that is fetched whole into one part.
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

GetOptions RequestFor(const FetchRun& run, const IndexedObject& object) {
  GetOptions get;
  get.range = run.range();
  get.if_match = object.etag;
  for (const FetchRun::Part& part : run.parts) {
    if (part.crc32c) get.checksums.push_back({part.span, *part.crc32c});
  }
  get.whole = get.checksums.empty() && get.range == ByteRange{.offset = 0, .length = object.size};
  return get;
}

absl::StatusOr<FetchRun> RunAround(const Index& index, const Selection* selection, uint64_t extent, uint64_t rank,
                                   const RunLimits& limits, absl::FunctionRef<bool(uint64_t)> wanted) {
  EntryReader reader(index, selection);
  ASSIGN_OR_RETURN(const std::span<const Entry> own, reader.Read(rank, rank + 1));
  const uint32_t object = own.front().object;
  RunBuilder run(object, PartOf(own.front()), limits.gap, limits.bytes);
  const auto [first, last_near] = RanksNear(rank, extent, limits.items);
  const uint64_t last = std::min(last_near, selection != nullptr ? selection->size() : index.size());
  const auto goes_on = [&](const Entry& entry) {
    if (!run.Fits(entry.object, entry.span)) return false;
    if (wanted(entry.rank)) run.Add(entry.object, PartOf(entry));
    return true;
  };
  for (uint64_t next = rank + 1; next < last;) {
    const uint64_t end = std::min(last, next - next % EntryReader::kBlock + EntryReader::kBlock);
    ASSIGN_OR_RETURN(const std::span<const Entry> entries, reader.Read(next, end));
    if (!std::all_of(entries.begin(), entries.end(), goes_on)) break;
    next = end;
  }
  for (uint64_t end = rank; end > first;) {
    const uint64_t begin = std::max(first, (end - 1) - (end - 1) % EntryReader::kBlock);
    ASSIGN_OR_RETURN(const std::span<const Entry> entries, reader.Read(begin, end));
    if (!std::all_of(entries.rbegin(), entries.rend(), goes_on)) break;
    end = begin;
  }
  return run.Finish();
}

absl::StatusOr<FetchRun> RunAroundPiece(const TokenRows& rows, std::shared_ptr<const RowGroup> of_row, uint64_t extent,
                                        PieceOfRow own, const RunLimits& limits,
                                        absl::FunctionRef<bool(uint64_t)> wanted,
                                        absl::FunctionRef<bool(PieceOfRow)> asked) {
  IndexedSample scratch;
  const RowGroup& group = *of_row;
  ASSIGN_OR_RETURN(const FetchRun::Part first, PartOf(rows, group, own, &scratch));
  RunBuilder run(scratch.object, first, limits.gap, limits.bytes);
  const Ranks near = RanksNear(own.rank, extent, limits.items);
  std::vector<std::optional<bool>> takes(group.rows());
  const auto try_add = [&](const RowGroup::Stored& stored) -> absl::StatusOr<bool> {
    const PieceOfRow other{group.first_row + stored.row, stored.segment - group.begins[stored.row]};
    std::optional<bool>& take = takes[stored.row];
    if (!take) take = near.first <= other.rank && other.rank < near.last && wanted(other.rank);
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
