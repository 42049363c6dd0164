#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shard/byte_gatherer.h"
#include "shard/shard_scanner.h"

namespace millrace {

/// Returns how many labels follow MXNet's header at the start of a record's data, 0 for the one within it; nullopt when
/// there is no such header.
std::optional<uint32_t> CountIrLabels(ByteSpan record);

/// RecordIO of dmlc and MXNet: every record is a sample, also one in several parts. With MXNet's header in front, its
/// label is the field `cls`, or its labels the field `labels`, and what follows is the image; other records are one
/// field. Fields of bytes are called `jpg`, `png` or `npy` by how they begin, else `bin`. Memory: a record that comes
/// in several chunks or parts.
///
/// RecordIO does not say whether records have MXNet's header. A record has it if its first number says how many labels
/// follow and that many fit, and the label is a number (0 where there are several).
class RecordIoScanner final : public ShardScanner {
 public:
  absl::Status Feed(ByteSpan chunk, ShardSink sink) override;
  absl::Status Finish(ShardSink sink) override;
  uint64_t held_bytes() const override {
    return bytes_.memory_bytes() + stored_.capacity() + joined_.capacity() + splits_.capacity() * sizeof(uint64_t);
  }

 private:
  absl::Status ReadHead(uint64_t offset, ByteSpan head);
  absl::Status ReadPart(uint64_t offset, ByteSpan data, ShardSink sink);
  absl::Status CheckInnerPart(uint64_t offset, ByteSpan data) const;
  absl::Status EmitJoined(ShardSink sink);
  absl::Status Emit(ByteSpan record, ShardSink sink);
  void AddField(std::string_view name, uint64_t begin, uint64_t end, std::string_view encoding);
  uint64_t Stored(uint64_t offset) const;

  ByteGatherer bytes_;
  std::optional<uint32_t> length_;  // of the part whose data come next
  uint32_t part_ = 0;               // kind of the latest part

  uint64_t begin_ = 0;            // of the record's data in the shard
  std::string stored_;            // a record in parts: as it is stored, from begin_ on; and
  std::string joined_;            // its data
  std::vector<uint64_t> splits_;  // where in the data a head of a part follows
  ShardSample sample_;            // reused
};

}  // namespace millrace
