#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/data_kind.h"
#include "shard/shard_sample.h"

namespace millrace {

/// Counts members of a tar that are not fields.
struct SkippedMembers {
  uint64_t links = 0;  // hard and symbolic ones whose names would be fields: they have no data of their own
  std::string first_link;
  uint64_t unnamed = 0;  // files whose names make no sample (SplitSampleName)
  std::string first_unnamed;
};

/// Finds the samples of one shard and their checksums, in one pass over its bytes, which the caller brings.
///
///   const std::unique_ptr<ShardScanner> scanner = MakeShardScanner(DataKind::kTar);
///   RETURN_IF_ERROR(scanner->Feed(chunk, sink));  // for each chunk of the shard
///   RETURN_IF_ERROR(scanner->Finish(sink));
///
/// A sample of a format without names has an empty key (RecordKey makes one). Errors start with the offset: DataLoss
/// for corrupt or truncated shards, InvalidArgument for what is well formed but not supported. After an error a scanner
/// must not be used. Not thread-safe.
class ShardScanner {
 public:
  virtual ~ShardScanner() = default;

  /// Takes the next bytes of the shard, in order, from its first one, in chunks of any size.
  virtual absl::Status Feed(ByteSpan chunk, ShardSink sink) = 0;

  /// Call it after the last byte: hands out the remaining samples. DataLoss if the shard is truncated.
  virtual absl::Status Finish(ShardSink sink) = 0;

  /// Call this after an error of Finish. Returns whether any of the samples may be damaged, also those that were handed
  /// out.
  virtual bool all_doubtful() const { return false; }

  /// Returns the memory for an incomplete record and for lists of records: everything that may be more than a few MiB.
  virtual uint64_t held_bytes() const = 0;

  /// Returns the members that were passed over so far; only of tar.
  virtual SkippedMembers skipped_members() const { return {}; }
};

/// Returns a scanner of shards of that kind; null for raw objects, and for token files, which need more parameters
/// (token_scanner.h).
std::unique_ptr<ShardScanner> MakeShardScanner(DataKind kind);

}  // namespace millrace
