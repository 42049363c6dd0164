#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/field_value.h"
#include "shard/mds_format.h"

/// Writes MDS shards and their index.json. Pure: the same input gives the same bytes.

namespace millrace {

/// Returns the column for values of that type. They become int as `int`, float as `float64`, text as `str`, JSON as
/// `json`, arrays as `ndarray`. Bytes become `image` (if they are known to be a JPEG or PNG file) or `bytes`.
MdsColumn MdsColumnFor(std::string_view name, FieldType type, std::string_view image);

/// Returns all columns of samples with these: sorted by name, with the key in `__key__`. Returns InvalidArgument for
/// names that are not UTF-8, that come twice, or that are `__key__`, and for too many of them.
absl::StatusOr<std::vector<MdsColumn>> MdsColumnsOf(std::vector<MdsColumn> columns);

/// Returns the columns for samples like this one; images are recognised by their first bytes.
absl::StatusOr<std::vector<MdsColumn>> MdsColumnsFor(std::span<const ValueField> fields);

/// Returns whether a value fits that column.
bool MdsColumnHolds(const MdsColumn& column, ByteSpan value);

/// Writes one shard, which is held in memory, since its beginning says where every sample is. Not thread-safe.
class MdsShardWriter {
 public:
  /// `columns` are those of MdsColumnsFor.
  explicit MdsShardWriter(std::vector<MdsColumn> columns);

  /// Returns InvalidArgument, with the key, in three cases; the shard is then as it was:
  ///   - the fields are not those of the columns;
  ///   - a value does not fit its column (an integer of more than 64 bits, an array without values);
  ///   - the shard would exceed kMaxMdsShardBytes or kMaxMdsSamples.
  absl::Status Add(std::string_view key, std::span<const ValueField> fields);

  uint64_t samples() const { return ends_.size(); }
  uint64_t bytes() const;  // of the shard, if it were finished now

  /// The shard is Head() followed by data().
  std::string Head() const;
  const std::string& data() const { return data_; }

 private:
  absl::Status AppendSample(std::string_view key, std::span<const ValueField> fields);

  std::vector<MdsColumn> columns_;
  std::string config_;  // JSON
  std::string data_;
  std::vector<uint64_t> ends_;  // of the samples, in data_
};

/// Returns the index.json of shards that all have these columns.
std::string MdsIndexJson(std::span<const MdsColumn> columns, std::span<const MdsShardEntry> shards);

}  // namespace millrace
