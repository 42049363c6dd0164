#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/crc_combine.h"
#include "base/crypto.h"
#include "checkpoint/shard_io.h"
#include "checkpoint/shard_requests.h"
#include "checkpoint/staging_memory.h"
#include "store/calls_in_flight.h"

namespace millrace {

namespace {

constexpr size_t kPiecesAtOnce = 16;
// From this size on, bytes that are stored together are worth a piece of their own, if pieces may have any length.
constexpr uint64_t kAloneBytes = 1 << 20;

uint64_t PieceBytesOf(uint64_t shard_bytes, PieceLimits limits) {
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t least = std::max(kPieceBytes, limits.least_bytes);
  const uint64_t even = (shard_bytes - 1) / std::min<uint64_t>(limits.most_pieces, 1'000'000) + 1;
  return std::max(least, (even + kMiB - 1) / kMiB * kMiB);
}

/// Returns the number of bytes that have one checksum. They are few enough that a range is read with little beside it,
/// and enough that the manifest stays small (130 KB for each shard).
uint64_t CheckedBytesOf(uint64_t shard_bytes) {
  constexpr uint64_t kLeast = 64 << 10;
  constexpr uint64_t kMostPieces = 16'384;
  return std::max(kLeast, std::bit_ceil((shard_bytes + kMostPieces - 1) / kMostPieces));
}

/// Data are processed in blocks of this size, so that a block stays in the caches of the CPU between two looks at it.
/// Pieces that have a checksum are as long, or several times as long.
constexpr uint64_t kBlockBytes = 64 << 10;

/// Adds bytes to the checksums of a shard's pieces, in order: those from `at` on. Returns their own checksum; no byte
/// is looked at twice.
uint32_t AddToChecksums(CheckpointShard& shard, uint64_t at, ByteSpan bytes) {
  uint32_t crc = 0;
  while (!bytes.empty()) {
    const uint64_t within = at % shard.piece_bytes;
    const ByteSpan part = bytes.first(std::min<uint64_t>(shard.piece_bytes - within, bytes.size()));
    if (within == 0) shard.piece_crc32c.push_back(0);
    const uint32_t before = shard.piece_crc32c.back();
    const uint32_t after = Crc32c(part, before);
    shard.piece_crc32c.back() = after;
    // This is the checksum of the part alone: the bytes before it are taken out again.
    const uint32_t alone = before == 0 ? after : Crc32cCombine(before, after, part.size());
    crc = crc == 0 ? alone : Crc32cCombine(crc, alone, part.size());
    at += part.size();
    bytes = bytes.subspan(part.size());
  }
  return crc;
}

/// Represents the source of the bytes of a shard, from its beginning to its end.
class ShardSource {
 public:
  virtual ~ShardSource() = default;
  /// Returns how many of the next bytes are best written as one piece, if pieces may have any length. These are the
  /// bytes of one place, or at most `most` bytes that are to be copied together.
  virtual uint64_t Together(uint64_t most) = 0;
  /// Returns the next `length` bytes, which must be there, if they are together in memory that stays until the shard is
  /// written. Else nothing, and nothing is taken.
  virtual std::optional<ByteSpan> Take(uint64_t length) = 0;
  /// Copies some of the next bytes, which must be there: as many as are best copied together, of bytes in memory up to
  /// `block`. Returns how many.
  virtual absl::StatusOr<size_t> Copy(MutableByteSpan into, uint64_t block) = 0;
};

class SpanSource final : public ShardSource {
 public:
  explicit SpanSource(const std::vector<ShardSpan>& spans) : spans_(spans) {}

  uint64_t Together(uint64_t most) override {
    Skip();
    if (const uint64_t rest = spans_[span_].size - offset_; IsAlone(span_, rest)) {
      return rest < most + kAloneBytes ? rest : most;  // no short piece behind it
    }
    uint64_t length = spans_[span_].size - offset_;
    for (size_t next = span_ + 1; next < spans_.size() && length < most; ++next) {
      if (IsAlone(next, spans_[next].size)) break;
      length += spans_[next].size;
    }
    return std::min(length, most);
  }

  std::optional<ByteSpan> Take(uint64_t length) override {
    Skip();
    const ShardSpan& span = spans_[span_];
    if (span.copy || span.size - offset_ < length) return std::nullopt;
    const ByteSpan taken = span.bytes.subspan(offset_, length);
    offset_ += length;
    return taken;
  }

  absl::StatusOr<size_t> Copy(MutableByteSpan into, uint64_t block) override {
    Skip();
    const ShardSpan& span = spans_[span_];
    uint64_t length = std::min<uint64_t>(span.size - offset_, into.size());
    if (span.copy) {
      RETURN_IF_ERROR(span.copy(offset_, into.first(length)));
    } else {
      length = std::min(length, block);
      std::memcpy(into.data(), span.bytes.data() + offset_, length);
    }
    offset_ += length;
    return length;
  }

 private:
  // Returns true if the last `rest` bytes of a span need not be copied.
  bool IsAlone(size_t span, uint64_t rest) const { return !spans_[span].copy && rest >= kAloneBytes; }

  // Moves past the ends of spans.
  void Skip() {
    while (offset_ == spans_[span_].size) {
      ++span_;
      offset_ = 0;
    }
  }

  const std::vector<ShardSpan>& spans_;
  size_t span_ = 0;
  uint64_t offset_ = 0;
};

class ShardWrites {
 public:
  ShardWrites(ObjectStore& store, std::string folder, StagingMemory& staging, const std::stop_token& stop)
      : store_(store), folder_(std::move(folder)), staging_(staging), calls_(stop) {}

  /// Begins to write a shard; returns when all of its pieces are in flight. After an error only End may be called.
  absl::Status Add(const std::string& name, uint64_t bytes, ShardSource& source);

  /// Waits for all pieces. `status` is that of adding.
  absl::StatusOr<std::vector<CheckpointShard>> End(absl::Status status) {
    if (!status.ok()) (void)calls_.Fail(std::move(status));
    RETURN_IF_ERROR(calls_.WaitForAll());
    if (calls_.stop().stop_requested()) {
      return absl::CancelledError(fmt::format("{}: interrupted", store_.Uri(folder_)));
    }
    std::vector<CheckpointShard> written;
    for (const std::unique_ptr<Shard>& shard : shards_) written.push_back(std::move(shard->written));
    return written;
  }

 private:
  struct Shard {
    CheckpointShard written;
    std::unique_ptr<PieceWriter> writer;  // null: it is one Put
    size_t in_flight = 0;                 // pieces
    bool all_sent = false;
  };
  struct Piece {
    ByteSpan bytes;
    uint32_t crc32c = 0;
  };

  absl::Status MakeRoom();
  absl::StatusOr<Piece> NextPiece(CheckpointShard& shard, uint64_t offset, uint64_t length, ShardSource& source,
                                  Buffer& staging);
  absl::StatusOr<Buffer> MakeStaging(uint64_t bytes);
  void GiveBack(Buffer staging);
  void Put(Shard& shard, ByteSpan bytes, Buffer staging);
  absl::Status OnPiece(Shard& shard, const absl::Status& written);
  std::string Key(const Shard& shard) const { return folder_ + shard.written.name; }

  ObjectStore& store_;
  const std::string folder_;
  StagingMemory& staging_;
  uint64_t staged_ = 0;  // of pieces in flight
  std::vector<std::unique_ptr<Shard>> shards_;
  CallsInFlight calls_;
};

absl::Status ShardWrites::Add(const std::string& name, uint64_t bytes, ShardSource& source) {
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
  const PieceLimits limits = store_.traits().pieces;
  const uint64_t piece_bytes = PieceBytesOf(bytes, limits);
  const bool any_length = limits.least_bytes <= 1 && limits.most_pieces == UINT64_MAX;
  const bool one = bytes <= piece_bytes;
  if (!one) {
    ASSIGN_OR_RETURN(shard.writer, store_.WritePieces(Key(shard), {.stop = calls_.stop()}));
  }
  uint64_t offset = 0;
  for (size_t i = 0; offset < bytes; ++i) {
    RETURN_IF_ERROR(MakeRoom());
    Buffer staging;
    const uint64_t length = std::min(any_length && !one ? source.Together(piece_bytes) : piece_bytes, bytes - offset);
    ASSIGN_OR_RETURN(const Piece piece, NextPiece(written, offset, length, source, staging));
    written.crc32c = Crc32cCombine(written.crc32c, piece.crc32c, length);
    const uint64_t begin = std::exchange(offset, offset + length);
    shard.all_sent = offset == bytes;
    if (one) {
      Put(shard, piece.bytes, std::move(staging));
      continue;
    }
    ++shard.in_flight;
    auto done = [this, &shard, staging = std::move(staging)](const absl::Status& status) mutable {
      GiveBack(std::move(staging));
      return OnPiece(shard, status);
    };
    shard.writer->Write(i, begin, piece.bytes, piece.crc32c, calls_.Add<absl::Status>(std::move(done)));
  }
  return absl::OkStatus();
}

// Returns the next bytes of a shard, and their checksums: a view of memory that stays, or of `staging`, which is made
// for them.
absl::StatusOr<ShardWrites::Piece> ShardWrites::NextPiece(CheckpointShard& shard, uint64_t offset, uint64_t length,
                                                          ShardSource& source, Buffer& staging) {
  if (const std::optional<ByteSpan> piece = source.Take(length))
    return Piece{*piece, AddToChecksums(shard, offset, *piece)};
  ASSIGN_OR_RETURN(staging, MakeStaging(length));
  const MutableByteSpan piece = staging.span().first(length);
  uint32_t crc = 0;
  for (uint64_t done = 0; done < length;) {
    // The block ends where the next checksum begins: no block has a part in two of them.
    const uint64_t block = kBlockBytes - (offset + done) % kBlockBytes;
    ASSIGN_OR_RETURN(const size_t copied, source.Copy(piece.subspan(done), block));
    crc = Crc32cCombine(crc, AddToChecksums(shard, offset + done, piece.subspan(done, copied)), copied);
    done += copied;
  }
  return Piece{piece, crc};
}

absl::StatusOr<Buffer> ShardWrites::MakeStaging(uint64_t bytes) {
  while (staged_ > 0 && staged_ + bytes > kMaxStagedBytes) RETURN_IF_ERROR(calls_.WaitForRoom(calls_.count()));
  Buffer staging = staging_.Take(bytes, staged_);
  staged_ += staging.size();
  return staging;
}

void ShardWrites::GiveBack(Buffer staging) {
  staged_ -= staging.size();
  staging_.GiveBack(std::move(staging));
}

void ShardWrites::Put(Shard& shard, ByteSpan bytes, Buffer staging) {
  auto done = [this, staging = std::move(staging)](const absl::StatusOr<ObjectInfo>& put) mutable {
    GiveBack(std::move(staging));
    return put.status();
  };
  store_.Put(Key(shard), bytes, {.stop = calls_.stop()}, calls_.Add<absl::StatusOr<ObjectInfo>>(std::move(done)));
}

absl::Status ShardWrites::MakeRoom() {
  RETURN_IF_ERROR(calls_.WaitForRoom(kPiecesAtOnce));
  if (!calls_.stop().stop_requested()) return absl::OkStatus();
  return absl::CancelledError(fmt::format("{}: interrupted", folder_));
}

// Makes the shard visible after its last piece.
absl::Status ShardWrites::OnPiece(Shard& shard, const absl::Status& written) {
  RETURN_IF_ERROR(written);
  --shard.in_flight;
  if (shard.in_flight > 0 || !shard.all_sent || calls_.stop().stop_requested()) return absl::OkStatus();
  shard.writer->Commit(shard.written.bytes, calls_.Add<absl::StatusOr<ObjectInfo>>(
                                                [](const auto& committed) { return committed.status(); }));
  return absl::OkStatus();
}

/// Represents the bytes of a shard that lies in a store.
class StoredShardSource final : public ShardSource {
 public:
  StoredShardSource(ObjectStore& store, MemoryBudget& memory, const std::string& folder, const CheckpointShard& shard,
                    const std::stop_token& stop)
      : name_(store.Uri(folder + shard.name)),
        reader_(store, memory, RequestsFor(store, memory, folder, shard), stop) {}

  uint64_t Together(uint64_t most) override { return most; }

  std::optional<ByteSpan> Take(uint64_t) override { return std::nullopt; }

  absl::StatusOr<size_t> Copy(MutableByteSpan into, uint64_t block) override {
    if (rest_.empty()) {
      const absl::StatusOr<std::optional<ObjectReader::Piece>> piece = reader_.Next();
      if (!piece.ok()) return ErrorOfShard(piece.status(), name_);
      if (!*piece) return absl::DataLossError(fmt::format("{}: it ends too early", name_));
      rest_ = (*piece)->bytes;
    }
    const size_t take = std::min<uint64_t>({rest_.size(), into.size(), block});
    std::memcpy(into.data(), rest_.data(), take);
    rest_ = rest_.subspan(take);
    return take;
  }

 private:
  static ObjectReader::Source RequestsFor(ObjectStore& store, MemoryBudget& memory, const std::string& folder,
                                          const CheckpointShard& shard) {
    const uint64_t request_bytes = ObjectReader::PieceBytes(store, memory);
    const uint64_t step = std::max(shard.piece_bytes, request_bytes / shard.piece_bytes * shard.piece_bytes);
    return [&folder, &shard, step, at = uint64_t{0}]() mutable -> absl::StatusOr<std::optional<ObjectReader::Request>> {
      if (at == shard.bytes) return std::nullopt;
      const uint64_t begin = std::exchange(at, std::min(shard.bytes, at + step));
      return RequestOf(folder, shard, begin, at);
    };
  }

  const std::string name_;
  ObjectReader reader_;
  ByteSpan rest_;
};

}  // namespace

uint64_t ShardBytes::Size() const {
  uint64_t bytes = 0;
  for (const ShardSpan& span : spans) bytes += span.size;
  return bytes;
}

absl::StatusOr<std::vector<CheckpointShard>> WriteShards(ObjectStore& store, const std::string& folder,
                                                         const std::vector<ShardBytes>& shards, StagingMemory& staging,
                                                         const std::stop_token& stop) {
  ShardWrites writes(store, folder, staging, stop);
  absl::Status status;
  for (auto shard = shards.begin(); shard != shards.end() && status.ok(); ++shard) {
    SpanSource source(shard->spans);
    status = writes.Add(shard->name, shard->Size(), source);
  }
  return writes.End(std::move(status));
}

absl::StatusOr<std::vector<CheckpointShard>> CopyShards(ObjectStore& from, const std::string& from_folder,
                                                        const std::vector<CheckpointShard>& shards, ObjectStore& to,
                                                        const std::string& to_folder, StagingMemory& staging,
                                                        MemoryBudget& memory, const std::stop_token& stop) {
  ShardWrites writes(to, to_folder, staging, stop);
  absl::Status status;
  for (auto shard = shards.begin(); shard != shards.end() && status.ok(); ++shard) {
    StoredShardSource source(from, memory, from_folder, *shard, stop);
    status = writes.Add(shard->name, shard->bytes, source);
  }
  return writes.End(std::move(status));
}

}  // namespace millrace
