#include "checkpoint/shard_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/buffer.h"
#include "base/crypto.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

constexpr size_t kPiecesAtOnce = 8;

uint64_t PieceBytesOf(uint64_t shard_bytes, PieceLimits limits) {
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t least = std::max(kPieceBytes, limits.least_bytes);
  const uint64_t even = (shard_bytes - 1) / std::min<uint64_t>(limits.most_pieces, 1'000'000) + 1;
  return std::max(least, (even + kMiB - 1) / kMiB * kMiB);
}

/// How many bytes have a checksum together: few enough that a range is read with little beside it, and enough that the
/// manifest stays small (180 KB for each shard).
uint64_t CheckedBytesOf(uint64_t shard_bytes) {
  constexpr uint64_t kLeast = 64 << 10;
  constexpr uint64_t kMostPieces = 16'384;
  return std::max(kLeast, std::bit_ceil((shard_bytes + kMostPieces - 1) / kMostPieces));
}

/// Adds bytes to the checksums of a shard, in order: those from `at` on.
void AddToChecksums(CheckpointShard& shard, uint64_t at, ByteSpan bytes) {
  while (!bytes.empty()) {
    const uint64_t within = at % shard.piece_bytes;
    const ByteSpan part = bytes.first(std::min<uint64_t>(shard.piece_bytes - within, bytes.size()));
    if (within == 0) shard.piece_crc32c.push_back(0);
    shard.piece_crc32c.back() = Crc32c(part, shard.piece_crc32c.back());
    shard.crc32c = Crc32c(part, shard.crc32c);  // from the caches of the CPU
    at += part.size();
    bytes = bytes.subspan(part.size());
  }
}

/// Walks through the spans of a shard, piece by piece.
class SpanCursor {
 public:
  explicit SpanCursor(const std::vector<ByteSpan>& spans) : spans_(spans) {}

  /// The next `length` bytes, which must be there: a view of a span, or of `staging`, which is made for them.
  ByteSpan Take(uint64_t length, Buffer& staging) {
    Skip();
    const ByteSpan rest = spans_[span_].subspan(offset_);
    if (rest.size() >= length) {
      offset_ += length;
      return rest.first(length);
    }
    staging = Buffer(length);
    for (uint64_t done = 0; done < length;) {
      Skip();
      const size_t take = std::min<uint64_t>(spans_[span_].size() - offset_, length - done);
      std::memcpy(staging.data() + done, spans_[span_].data() + offset_, take);
      offset_ += take;
      done += take;
    }
    return staging.span();
  }

 private:
  // Past the ends of spans.
  void Skip() {
    while (offset_ == spans_[span_].size()) {
      ++span_;
      offset_ = 0;
    }
  }

  const std::vector<ByteSpan>& spans_;
  size_t span_ = 0;
  size_t offset_ = 0;
};

class ShardWrites {
 public:
  ShardWrites(ObjectStore& store, std::string folder, const std::stop_token& stop)
      : store_(store), folder_(std::move(folder)), on_stop_(stop, [this] { stop_.request_stop(); }) {}

  /// The next `length` bytes of a shard: a view of memory that stays, or of `staging`, which is made for them.
  using TakeBytes = absl::FunctionRef<absl::StatusOr<ByteSpan>(uint64_t length, Buffer& staging)>;

  /// Begins to write a shard; returns when all of its pieces are in flight. After an error only End may be called.
  absl::Status Add(const std::string& name, uint64_t bytes, TakeBytes take);

  /// Waits for all pieces. `status` is that of adding.
  absl::StatusOr<std::vector<CheckpointShard>> End(absl::Status status) {
    while (in_flight_ > 0) {
      if (!status.ok()) stop_.request_stop();
      status.Update(Handle(Wait()));
    }
    RETURN_IF_ERROR(status);
    std::vector<CheckpointShard> written;
    for (const std::unique_ptr<Shard>& shard : shards_) written.push_back(std::move(shard->written));
    return written;
  }

 private:
  struct Shard {
    CheckpointShard written;
    std::unique_ptr<PieceWriter> writer;  // null: it is one Put
    size_t left = 0;                      // pieces that have not landed
  };
  struct Event {
    Shard* shard = nullptr;
    bool piece = false;  // else the whole object
    absl::Status status;
    Buffer staging;  // freed with the event
  };

  absl::Status MakeRoom();
  absl::Status Handle(Event event);
  void Put(Shard& shard, ByteSpan bytes, Buffer staging);
  void Post(Event event);
  Event Wait();
  std::string Key(const Shard& shard) const { return folder_ + shard.written.name; }

  ObjectStore& store_;
  const std::string folder_;
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> on_stop_;
  std::vector<std::unique_ptr<Shard>> shards_;
  size_t in_flight_ = 0;

  std::mutex mutex_;
  std::condition_variable told_;
  std::deque<Event> events_;
};

absl::Status ShardWrites::Add(const std::string& name, uint64_t bytes, TakeBytes take) {
  Shard& shard = *shards_.emplace_back(std::make_unique<Shard>());
  CheckpointShard& written = shard.written;
  written.name = name;
  written.bytes = bytes;
  written.piece_bytes = CheckedBytesOf(bytes);
  if (bytes == 0) {
    RETURN_IF_ERROR(MakeRoom());
    Put(shard, {}, {});
    return absl::OkStatus();
  }
  const uint64_t piece_bytes = PieceBytesOf(bytes, store_.traits().pieces);
  shard.left = (bytes - 1) / piece_bytes + 1;
  const size_t pieces = shard.left;
  if (pieces > 1) {
    ASSIGN_OR_RETURN(shard.writer, store_.WritePieces(Key(shard), {.stop = stop_.get_token()}));
  }
  for (size_t i = 0; i < pieces; ++i) {
    RETURN_IF_ERROR(MakeRoom());
    const uint64_t offset = i * piece_bytes;
    Buffer staging;
    ASSIGN_OR_RETURN(const ByteSpan piece, take(std::min(piece_bytes, bytes - offset), staging));
    AddToChecksums(written, offset, piece);
    if (pieces == 1) {
      Put(shard, piece, std::move(staging));
      return absl::OkStatus();
    }
    ++in_flight_;
    shard.writer->Write(i, offset, piece, [this, &shard, staging = std::move(staging)](absl::Status status) mutable {
      Post({&shard, true, std::move(status), std::move(staging)});
    });
  }
  return absl::OkStatus();
}

void ShardWrites::Put(Shard& shard, ByteSpan bytes, Buffer staging) {
  ++in_flight_;
  store_.Put(Key(shard), bytes, {.stop = stop_.get_token()},
             [this, &shard, staging = std::move(staging)](const absl::StatusOr<ObjectInfo>& put) mutable {
               Post({&shard, false, put.status(), std::move(staging)});
             });
}

absl::Status ShardWrites::MakeRoom() {
  absl::Status status;
  while (status.ok() && in_flight_ >= kPiecesAtOnce) status = Handle(Wait());
  if (status.ok() && stop_.stop_requested()) return absl::CancelledError(fmt::format("{}: interrupted", folder_));
  return status;
}

absl::Status ShardWrites::Handle(Event event) {
  --in_flight_;
  RETURN_IF_ERROR(event.status);
  if (!event.piece || --event.shard->left > 0 || stop_.stop_requested()) return absl::OkStatus();
  Shard& shard = *event.shard;
  ++in_flight_;
  shard.writer->Commit(shard.written.bytes, [this, &shard](const absl::StatusOr<ObjectInfo>& committed) {
    Post({&shard, false, committed.status(), {}});
  });
  return absl::OkStatus();
}

void ShardWrites::Post(Event event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  told_.notify_all();  // under the lock: the waiting thread may destroy this right after
}

ShardWrites::Event ShardWrites::Wait() {
  std::unique_lock lock(mutex_);
  told_.wait(lock, [this] { return !events_.empty(); });
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

/// Bytes that are read by one request: whole pieces, of one shard.
struct ShardRead {
  size_t shard = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// The requests that bring all of the ranges, which are sorted, in order.
std::vector<ShardRead> PlanReads(const std::vector<CheckpointShard>& shards, const std::vector<ShardRange>& ranges,
                                 uint64_t request_bytes) {
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
  std::vector<ShardRead> reads;
  for (const ShardRead& run : runs) {
    const uint64_t piece_bytes = shards[run.shard].piece_bytes;
    const uint64_t step = std::max(piece_bytes, request_bytes / piece_bytes * piece_bytes);
    for (uint64_t begin = run.begin; begin < run.end; begin += step) {
      reads.push_back({run.shard, begin, std::min(run.end, begin + step)});
    }
  }
  return reads;
}

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

}  // namespace

uint64_t ShardBytes::Size() const {
  uint64_t bytes = 0;
  for (const ByteSpan span : spans) bytes += span.size();
  return bytes;
}

absl::StatusOr<std::vector<CheckpointShard>> WriteShards(ObjectStore& store, const std::string& folder,
                                                         const std::vector<ShardBytes>& shards,
                                                         const std::stop_token& stop) {
  ShardWrites writes(store, folder, stop);
  absl::Status status;
  for (auto shard = shards.begin(); shard != shards.end() && status.ok(); ++shard) {
    SpanCursor cursor(shard->spans);
    status = writes.Add(shard->name, shard->Size(), [&](uint64_t length, Buffer& staging) -> absl::StatusOr<ByteSpan> {
      return cursor.Take(length, staging);
    });
  }
  absl::StatusOr<std::vector<CheckpointShard>> written = writes.End(std::move(status));
  if (written.ok() && stop.stop_requested()) {
    return absl::CancelledError(fmt::format("{}: interrupted", store.Uri(folder)));
  }
  return written;
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
  size_t asked = 0;
  size_t first = 0;  // no range before it reaches into the request
  const auto next = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (asked == reads.size()) return std::nullopt;
    const ShardRead& read = reads[asked++];
    ObjectReader::Request request = RequestOf(folder, shards[read.shard], read.begin, read.end);
    SkipBefore(ranges, read, &first);
    // Straight into the memory of a range that wants all of it.
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
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reader.Next());
    if (!piece) return bytes;
    dealer.Deal(reads[done], piece->bytes);
    bytes += piece->bytes.size();
  }
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
  size_t shard = 0;
  uint64_t at = 0;
  const auto next = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    while (shard < shards.size() && at == shards[shard].bytes) {
      ++shard;
      at = 0;
    }
    if (shard == shards.size()) return std::nullopt;
    const CheckpointShard& from = shards[shard];
    const uint64_t step = std::max(from.piece_bytes, request_bytes / from.piece_bytes * from.piece_bytes);
    const uint64_t begin = std::exchange(at, std::min(from.bytes, at + step));
    return RequestOf(folder, from, begin, at);
  };
  ObjectReader reader(store, memory, next, stop);
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> read, reader.Next());
    if (!read) return absl::OkStatus();
  }
}

absl::StatusOr<std::vector<CheckpointShard>> CopyShards(ObjectStore& from, const std::string& from_folder,
                                                        const std::vector<CheckpointShard>& shards, ObjectStore& to,
                                                        const std::string& to_folder, MemoryBudget& memory,
                                                        const std::stop_token& stop) {
  ShardWrites writes(to, to_folder, stop);
  absl::Status status;
  for (auto shard = shards.begin(); shard != shards.end() && status.ok(); ++shard) {
    const uint64_t request_bytes = ObjectReader::PieceBytes(from, memory);
    const uint64_t step = std::max(shard->piece_bytes, request_bytes / shard->piece_bytes * shard->piece_bytes);
    uint64_t at = 0;
    const auto next = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
      if (at == shard->bytes) return std::nullopt;
      const uint64_t begin = std::exchange(at, std::min(shard->bytes, at + step));
      return RequestOf(from_folder, *shard, begin, at);
    };
    ObjectReader reader(from, memory, next, stop);
    ByteSpan rest;
    status = writes.Add(shard->name, shard->bytes, [&](uint64_t length, Buffer& staging) -> absl::StatusOr<ByteSpan> {
      staging = Buffer(length);
      for (uint64_t done = 0; done < length;) {
        if (rest.empty()) {
          ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reader.Next());
          if (!piece) return absl::DataLossError(fmt::format("{}: it ends too early", from.Uri(from_folder)));
          rest = piece->bytes;
        }
        const size_t take = std::min<uint64_t>(rest.size(), length - done);
        std::memcpy(staging.data() + done, rest.data(), take);
        rest = rest.subspan(take);
        done += take;
      }
      return staging.span();
    });
  }
  absl::StatusOr<std::vector<CheckpointShard>> written = writes.End(std::move(status));
  if (written.ok() && stop.stop_requested()) {
    return absl::CancelledError(fmt::format("{}: interrupted", to.Uri(to_folder)));
  }
  return written;
}

}  // namespace millrace
