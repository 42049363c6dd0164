#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shard/byte_gatherer.h"
#include "shard/shard_scanner.h"
#include "shard/tf_example.h"

namespace millrace {

/// TFRecord: every record is a sample. Both checksums of a record are verified. The features of a tf.train.Example
/// become fields with their names; one called `__key__` that holds bytes is the sample's key. A record that is no
/// Example becomes the field `bin`. Files that are compressed as a whole are refused. Memory: a record that comes in
/// several chunks, and a sample's names.
class TfRecordScanner final : public ShardScanner {
 public:
  absl::Status Feed(ByteSpan chunk, ShardSink sink) override;
  absl::Status Finish(ShardSink sink) override;
  uint64_t held_bytes() const override { return bytes_.memory_bytes(); }

 private:
  absl::Status ReadHead(uint64_t offset, ByteSpan head);
  absl::Status ReadRecord(uint64_t offset, ByteSpan record, ShardSink sink);
  void AddFeature(uint64_t offset, ByteSpan record, const TfFeature& feature);

  ByteGatherer bytes_;
  std::optional<uint64_t> length_;  // of the record whose data come next
  ShardSample sample_;              // reused
  std::vector<TfFeature> features_;
};

}  // namespace millrace
