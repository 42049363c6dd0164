#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "dataset/index.h"
#include "dataset/index_writer.h"
#include "shard/tar_samples.h"
#include "store/stores.h"

namespace millrace {

/// Writes samples into consecutive tar shards and their index. Everything written also runs through the scanner
/// that indexes foreign shards, so the index is by construction the one that `millrace index` would build.
/// Blocking; not thread-safe; after an error only destruction is allowed, which leaves the shards that are
/// complete.
class ShardWriter {
 public:
  ShardWriter(const Location& destination, uint64_t shard_bytes, std::unique_ptr<ObjectWriter> index,
              std::stop_token stop = {});

  /// The bytes of a sample's span from `offset` on, in order; `last` ends it. InvalidArgument when the sample has
  /// the key of the one before it: they would become one.
  absl::Status Add(const IndexedSample& sample, uint64_t offset, ByteSpan bytes, bool last);

  /// Ends the last shard; the index becomes visible. Counts are valid after this.
  absl::StatusOr<IndexSummary> Finish();

  uint64_t shards() const { return shards_; }
  uint64_t shard_bytes() const { return total_bytes_; }

  /// Name of a shard below the destination.
  static std::string ShardName(uint64_t number);

 private:
  absl::Status BeginSample(const IndexedSample& sample);
  absl::StatusOr<uint64_t> PackedBytes(const IndexedSample& sample) const;
  absl::Status BeginField(const IndexedField& field);
  absl::Status OpenShard();
  absl::Status EndShard();
  absl::Status Append(ByteSpan bytes);
  absl::Status Flush();
  absl::Status AddToIndex(const ShardSample& sample);

  const Location destination_;
  const uint64_t shard_limit_;
  IndexWriter index_;
  const std::stop_token stop_;

  std::unique_ptr<ObjectWriter> out_;  // of the open shard
  std::string buffer_;
  uint64_t shard_offset_ = 0;  // with what is in buffer_
  TarSampleScanner scanner_;
  uint64_t shards_ = 0;
  uint64_t total_bytes_ = 0;

  std::string key_;  // of the latest sample; valid when samples_ > 0
  uint64_t samples_ = 0;
  std::vector<IndexedField> fields_;  // of the open sample: the stored ones, in stored order
  size_t next_field_ = 0;             // the first that is not complete
  bool field_begun_ = false;
  std::vector<NewSampleField> index_fields_;  // reused
};

}  // namespace millrace
