#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "checkpoint/shard_io.h"
#include "checkpoint/shard_requests.h"

namespace millrace {

namespace {

// From this size on, bytes that go straight to their place are worth up to two requests more.
constexpr uint64_t kDirectBytes = 1 << 20;

/// Describes bytes that are read by one request: whole pieces, of one shard.
struct ShardRead {
  size_t shard = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// The part of a range that consists of whole pieces, and is worth requests of its own; empty if there is none.
ShardRead DirectPart(const CheckpointShard& shard, const ShardRange& range) {
  const uint64_t piece = shard.piece_bytes;
  const uint64_t range_end = range.offset + range.into.size();
  const uint64_t begin = (range.offset + piece - 1) / piece * piece;
  const uint64_t end = range_end == shard.bytes ? range_end : range_end / piece * piece;
  if (end < begin + kDirectBytes) return {range.shard, begin, begin};
  return {range.shard, begin, end};
}

/// Returns whole pieces that follow each other and have all of the ranges, which are sorted, in order.
std::vector<ShardRead> PlanRuns(const std::vector<CheckpointShard>& shards, const std::vector<ShardRange>& ranges) {
  std::vector<ShardRead> runs;
  for (const ShardRange& range : ranges) {
    const CheckpointShard& shard = shards[range.shard];
    if (range.into.empty()) continue;
    const uint64_t begin = range.offset / shard.piece_bytes * shard.piece_bytes;
    const uint64_t last = range.offset + range.into.size() - 1;
    const uint64_t end = std::min(shard.bytes, (last / shard.piece_bytes + 1) * shard.piece_bytes);
    if (!runs.empty() && runs.back().shard == range.shard && begin <= runs.back().end) {
      runs.back().end = std::max(runs.back().end, end);
    } else {
      runs.push_back({range.shard, begin, end});
    }
  }
  return runs;
}

/// Returns the places within a run where requests begin and end: the ends of the direct parts of ranges, so that these
/// bytes go straight to their place. The pieces between them, in which one tensor ends and another one begins, are read
/// by small requests of their own.
std::vector<uint64_t> CutsOf(const std::vector<CheckpointShard>& shards, const std::vector<ShardRange>& ranges,
                             const ShardRead& run, size_t* first) {
  std::vector<uint64_t> cuts;
  for (; *first < ranges.size(); ++*first) {
    const ShardRange& range = ranges[*first];
    if (range.shard > run.shard || (range.shard == run.shard && range.offset >= run.end)) break;
    const ShardRead direct = DirectPart(shards[range.shard], range);
    if (direct.begin != direct.end) cuts.insert(cuts.end(), {direct.begin, direct.end});
  }
  std::sort(cuts.begin(), cuts.end());  // ranges may overlap
  return cuts;
}

/// Returns the requests that bring all of the ranges, which are sorted, in order.
std::vector<ShardRead> PlanReads(const std::vector<CheckpointShard>& shards, const std::vector<ShardRange>& ranges,
                                 uint64_t request_bytes) {
  std::vector<ShardRead> reads;
  size_t first = 0;
  for (const ShardRead& run : PlanRuns(shards, ranges)) {
    const uint64_t piece_bytes = shards[run.shard].piece_bytes;
    const uint64_t step = std::max(piece_bytes, request_bytes / piece_bytes * piece_bytes);
    std::vector<uint64_t> cuts = CutsOf(shards, ranges, run, &first);
    cuts.push_back(run.end);
    uint64_t begin = run.begin;
    for (const uint64_t cut : cuts) {
      for (; begin < cut; begin = std::min(cut, begin + step)) {
        reads.push_back({run.shard, begin, std::min(cut, begin + step)});
      }
    }
  }
  return reads;
}

/// The part of `range` that lies in [begin, begin + size); empty if there is none.
MutableByteSpan PartOf(const ShardRange& range, uint64_t begin, uint64_t size) {
  const uint64_t from = std::max(begin, range.offset);
  const uint64_t to = std::min(begin + size, range.offset + range.into.size());
  return from < to ? range.into.subspan(from - range.offset, to - from) : MutableByteSpan();
}

/// Moves `first` past the ranges that end before the read.
void SkipBefore(const std::vector<ShardRange>& ranges, const ShardRead& read, size_t* first) {
  const auto is_before = [&read](const ShardRange& range) {
    return range.shard < read.shard || (range.shard == read.shard && range.offset + range.into.size() <= read.begin);
  };
  while (*first < ranges.size() && is_before(ranges[*first])) ++*first;
}

/// Deals bytes out to the ranges that want them.
class RangeDealer {
 public:
  explicit RangeDealer(const std::vector<ShardRange>& ranges) : ranges_(ranges) {}

  /// Reads and their bytes come in order.
  void Deal(const ShardRead& read, ByteSpan bytes) {
    SkipBefore(ranges_, read, &first_);
    for (size_t i = first_; i < ranges_.size() && ranges_[i].shard == read.shard && ranges_[i].offset < read.end; ++i) {
      const MutableByteSpan part = PartOf(ranges_[i], read.begin, bytes.size());
      if (part.empty()) continue;
      const std::byte* const from = bytes.data() + (std::max(read.begin, ranges_[i].offset) - read.begin);
      if (from != part.data()) std::memcpy(part.data(), from, part.size());
    }
  }

 private:
  const std::vector<ShardRange>& ranges_;
  size_t first_ = 0;
};

/// Returns ErrorOfShard for the read whose answer comes next, after `done` of them; the error itself if there is no
/// such read.
absl::Status ErrorOfRead(const absl::Status& error, const ObjectStore& store, const std::string& folder,
                         const std::vector<CheckpointShard>& shards, const std::vector<ShardRead>& reads, size_t done) {
  if (done == reads.size()) return error;
  return ErrorOfShard(error, store.Uri(folder + shards[reads[done].shard].name));
}

/// Makes the reads in order, and deals their bytes out to the ranges, which are sorted. Returns how many bytes were
/// read.
absl::StatusOr<uint64_t> RunReads(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                                  const std::vector<CheckpointShard>& shards, const std::vector<ShardRead>& reads,
                                  const std::vector<ShardRange>& ranges, const std::stop_token& stop) {
  size_t asked = 0;
  size_t first = 0;  // no range before it reaches into the request
  const auto next = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (asked == reads.size()) return std::nullopt;
    const ShardRead& read = reads[asked++];
    ObjectReader::Request request = RequestOf(folder, shards[read.shard], read.begin, read.end);
    SkipBefore(ranges, read, &first);
    // The bytes go straight into the memory of a range that needs all of them.
    for (size_t i = first; i < ranges.size() && ranges[i].shard == read.shard && ranges[i].offset <= read.begin; ++i) {
      const MutableByteSpan part = PartOf(ranges[i], read.begin, read.end - read.begin);
      if (part.size() != read.end - read.begin) continue;
      request.into = part;
      break;
    }
    return request;
  };
  ObjectReader reader(store, memory, next, stop);
  RangeDealer dealer(ranges);
  uint64_t bytes = 0;
  for (size_t done = 0;; ++done) {
    const absl::StatusOr<std::optional<ObjectReader::Piece>> piece = reader.Next();
    if (!piece.ok()) return ErrorOfRead(piece.status(), store, folder, shards, reads, done);
    if (!*piece) return bytes;
    dealer.Deal(reads[done], (*piece)->bytes);
    bytes += (*piece)->bytes.size();
  }
}

}  // namespace

ObjectReader::Request RequestOf(const std::string& folder, const CheckpointShard& shard, uint64_t begin, uint64_t end) {
  ObjectReader::Request request;
  request.object.key = folder + shard.name;
  request.object.size = shard.bytes;
  request.range = {begin, end - begin};
  request.in_one = true;
  for (uint64_t at = begin; at < end; at += shard.piece_bytes) {
    request.checksums.push_back(
        {{at, std::min(shard.piece_bytes, end - at)}, shard.piece_crc32c[at / shard.piece_bytes]});
  }
  return request;
}

absl::Status ErrorOfShard(const absl::Status& error, std::string_view uri) {
  constexpr const char* kRemedy = "load another step, or restore this file from a copy";
  if (absl::IsDataLoss(error)) {
    return absl::DataLossError(
        fmt::format("{}: its bytes are not those that were saved: they have another CRC32C; {}", uri, kRemedy));
  }
  if (absl::IsOutOfRange(error))
    return absl::OutOfRangeError(fmt::format("{}: it is shorter than what was saved; {}", uri, kRemedy));
  return error;
}

absl::StatusOr<uint64_t> ReadRanges(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                                    const std::vector<CheckpointShard>& shards, std::vector<ShardRange> ranges,
                                    const std::stop_token& stop) {
  for (const ShardRange& range : ranges) {
    const CheckpointShard& shard = shards.at(range.shard);
    if (range.offset <= shard.bytes && range.into.size() <= shard.bytes - range.offset) continue;
    return absl::OutOfRangeError(fmt::format("{}: bytes {} to {} were asked for; it has {}",
                                             store.Uri(folder + shard.name), range.offset,
                                             range.offset + range.into.size(), shard.bytes));
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](const ShardRange& a, const ShardRange& b) {
    return a.shard != b.shard ? a.shard < b.shard : a.offset < b.offset;
  });
  const std::vector<ShardRead> reads = PlanReads(shards, ranges, ObjectReader::PieceBytes(store, memory));
  return RunReads(store, memory, folder, shards, reads, ranges, stop);
}

absl::Status ReadShards(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                        const std::vector<CheckpointShard>& shards, const std::vector<MutableByteSpan>& into,
                        const std::stop_token& stop) {
  if (!into.empty()) {
    std::vector<ShardRange> ranges;
    for (size_t i = 0; i < into.size(); ++i) ranges.push_back({.shard = i, .offset = 0, .into = into[i]});
    return ReadRanges(store, memory, folder, shards, std::move(ranges), stop).status();
  }
  const uint64_t request_bytes = ObjectReader::PieceBytes(store, memory);
  std::vector<ShardRead> reads;
  for (size_t i = 0; i < shards.size(); ++i) {
    const CheckpointShard& from = shards[i];
    const uint64_t step = std::max(from.piece_bytes, request_bytes / from.piece_bytes * from.piece_bytes);
    for (uint64_t at = 0; at < from.bytes; at += step) reads.push_back({i, at, std::min(from.bytes, at + step)});
  }
  return RunReads(store, memory, folder, shards, reads, {}, stop).status();
}

}  // namespace millrace
