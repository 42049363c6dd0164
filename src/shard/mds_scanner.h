#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shard/byte_gatherer.h"
#include "shard/mds_format.h"
#include "shard/shard_scanner.h"

namespace millrace {

/// MDS shards (mds_format.h), not compressed: the columns become fields with their names; one called `__key__` that
/// holds text or bytes is the sample's key. Memory: the shard's offsets, and a sample that comes in several chunks.
class MdsScanner final : public ShardScanner {
 public:
  absl::Status Feed(ByteSpan chunk, ShardSink sink) override;
  absl::Status Finish(ShardSink sink) override;
  uint64_t held_bytes() const override { return bytes_.memory_bytes() + offsets_.capacity() * sizeof(uint32_t); }

  /// Takes the first bytes of the shard in place of Feed. Returns false if its head, which ends with the columns, is
  /// longer. Errors are those of Feed.
  absl::StatusOr<bool> FeedHead(ByteSpan first_bytes);
  /// After FeedHead, these return whether a sample has a `cls`, and how many there are.
  bool has_class() const;
  uint64_t samples() const { return samples_; }
  /// Finds the samples of a shard of that size, by its head alone, without CRCs and labels; may be called again.
  /// Returns InvalidArgument if the head does not say where the values are: several columns are of no fixed size, or
  /// samples have keys. Returns DataLoss if it does not fit the size.
  absl::Status Outline(uint64_t shard_bytes, ShardSink sink);

 private:
  enum class State : uint8_t { kCount, kOffsets, kColumns, kSamples };
  struct Column {
    std::string name;
    std::string encoding;  // of field_value.h
    uint64_t fixed_size = 0;
    bool is_key = false;
  };

  uint64_t NextBytes() const;
  absl::Status Read(uint64_t offset, ByteSpan bytes, ShardSink sink);
  absl::Status ReadCount(ByteSpan bytes);
  absl::Status ReadOffsets(ByteSpan bytes);
  absl::Status ReadColumns(uint64_t offset, ByteSpan json);
  absl::Status ReadSample(uint64_t offset, ByteSpan bytes, ShardSink sink);
  absl::Status OutlineSample(uint64_t number, ShardSink sink);

  ByteGatherer bytes_;
  State state_ = State::kCount;
  std::vector<uint32_t> offsets_;  // of the samples, and of their end
  uint64_t samples_ = 0;
  uint64_t next_ = 0;  // sample
  std::vector<Column> columns_;
  uint64_t sizes_bytes_ = 0;  // at the start of each sample
  uint64_t fixed_bytes_ = 0;  // of the columns that have a fixed size
  ShardSample sample_;        // reused
};

}  // namespace millrace
