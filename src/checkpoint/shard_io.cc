#include "checkpoint/shard_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/crc_combine.h"
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

  absl::StatusOr<std::vector<CheckpointShard>> Run(const std::vector<ShardBytes>& shards) {
    absl::Status status;
    for (auto shard = shards.begin(); shard != shards.end() && status.ok(); ++shard) status = Start(*shard);
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

  absl::Status Start(const ShardBytes& source);
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

absl::Status ShardWrites::Start(const ShardBytes& source) {
  Shard& shard = *shards_.emplace_back(std::make_unique<Shard>());
  CheckpointShard& written = shard.written;
  written.name = source.name;
  written.bytes = source.Size();
  written.piece_bytes = PieceBytesOf(std::max<uint64_t>(written.bytes, 1), store_.traits().pieces);
  if (written.bytes == 0) {
    RETURN_IF_ERROR(MakeRoom());
    Put(shard, {}, {});
    return absl::OkStatus();
  }
  shard.left = (written.bytes - 1) / written.piece_bytes + 1;
  const size_t pieces = shard.left;
  if (pieces > 1) {
    ASSIGN_OR_RETURN(shard.writer, store_.WritePieces(Key(shard), {.stop = stop_.get_token()}));
  }
  SpanCursor cursor(source.spans);
  for (size_t i = 0; i < pieces; ++i) {
    RETURN_IF_ERROR(MakeRoom());
    const uint64_t offset = i * written.piece_bytes;
    Buffer staging;
    const ByteSpan bytes = cursor.Take(std::min(written.piece_bytes, written.bytes - offset), staging);
    const uint32_t crc = Crc32c(bytes);
    written.piece_crc32c.push_back(crc);
    written.crc32c = Crc32cCombine(written.crc32c, crc, bytes.size());
    if (pieces == 1) {
      Put(shard, bytes, std::move(staging));
      return absl::OkStatus();
    }
    ++in_flight_;
    shard.writer->Write(i, offset, bytes, [this, &shard, staging = std::move(staging)](absl::Status status) mutable {
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

}  // namespace

uint64_t ShardBytes::Size() const {
  uint64_t bytes = 0;
  for (const ByteSpan span : spans) bytes += span.size();
  return bytes;
}

absl::StatusOr<std::vector<CheckpointShard>> WriteShards(ObjectStore& store, const std::string& folder,
                                                         const std::vector<ShardBytes>& shards,
                                                         const std::stop_token& stop) {
  absl::StatusOr<std::vector<CheckpointShard>> written = ShardWrites(store, folder, stop).Run(shards);
  if (written.ok() && stop.stop_requested()) {
    return absl::CancelledError(fmt::format("{}: interrupted", store.Uri(folder)));
  }
  return written;
}

absl::Status ReadShards(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                        const std::vector<CheckpointShard>& shards, const std::vector<MutableByteSpan>& into,
                        const std::stop_token& stop) {
  size_t shard = 0;
  size_t piece = 0;
  const auto next = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    while (shard < shards.size() && piece == shards[shard].piece_crc32c.size()) {
      ++shard;
      piece = 0;
    }
    if (shard == shards.size()) return std::nullopt;
    const CheckpointShard& from = shards[shard];
    ObjectReader::Request request;
    request.object.key = folder + from.name;
    request.object.size = from.bytes;
    request.range.offset = piece * from.piece_bytes;
    request.range.length = std::min(from.piece_bytes, from.bytes - request.range.offset);
    request.checksums = {{request.range, from.piece_crc32c[piece]}};
    request.in_one = true;
    if (!into.empty()) request.into = into[shard].subspan(request.range.offset, request.range.length);
    ++piece;
    return request;
  };
  ObjectReader reader(store, memory, next, stop);
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> read, reader.Next());
    if (!read) return absl::OkStatus();
  }
}

}  // namespace millrace
