#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/long_task.h"
#include "base/rng.h"
#include "pipeline/subset.h"
#include "plan/row_spec.h"
#include "plan/row_table.h"
#include "shard/number_type.h"
#include "transfer/artifact.h"

namespace millrace {

/// Says how tokens become batches of declared shapes (docs/tokens.md).
struct TokenOptions {
  static constexpr size_t kMaxBuckets = 64;

  /// Represents a length of rows, and the number of them that make a batch of one rank.
  struct Bucket {
    uint64_t length = 0;
    uint64_t batch = 0;
    friend bool operator==(const Bucket&, const Bucket&) = default;
  };

  RowLayout layout = RowLayout::kPack;
  uint64_t length = 0;          // of a row, without buckets
  std::vector<Bucket> buckets;  // kPad only: each sample goes where it fits best; ascending lengths
  bool documents = true;        // kStream: rows know where documents begin; kPack always does
  LongSamples longer = LongSamples::kSplit;
  std::string field = "tokens";
  std::string stored;  // of a field of bytes: NumPy's name of the type of the numbers in it, "int64"; "" for others

  /// Returns InvalidArgument with the reason if the options are invalid.
  absl::Status Check() const;
  /// Returns true if rows come with position_ids and segment_ids.
  bool with_segments() const { return layout == RowLayout::kPack || (layout == RowLayout::kStream && documents); }
  uint64_t longest() const { return buckets.empty() ? length : buckets.back().length; }
};

/// Represents the rows that the samples of a subset make: their table, and the places of their tokens. For example, a
/// row of 2,048 tokens has documents 3 and 4 and the beginning of document 5. Immutable and thread-safe; the data set
/// must outlive it.
class TokenRows {
 public:
  /// These are the maximal bytes of a sample that is fetched whole, and so verified, even if only some of its tokens
  /// are wanted.
  static constexpr uint64_t kWholeSampleBytes = uint64_t{64} << 10;

  TokenRows(Subset samples, std::string field, NumberType type, SharedArtifact file, RowTable table)
      : samples_(std::move(samples)), field_(std::move(field)), type_(type), file_(std::move(file)), table_(table) {}

  const RowTable& table() const { return table_; }
  const Subset& samples() const { return samples_; }
  NumberType type() const { return type_; }
  const std::string& field() const { return field_; }
  /// Returns the place of the table.
  const std::string& uri() const { return file_->uri(); }

  /// Represents the bytes to fetch for a piece of a row: the whole sample, or only the wanted bytes of a long one.
  struct Place {
    uint64_t sample = 0;  // as the index numbers it
    uint32_t object = 0;
    ByteRange span;
    std::optional<uint32_t> crc32c;  // of the span
    uint64_t skip = 0;               // bytes of the span before those of the piece
    uint64_t bytes = 0;              // of the piece
  };
  /// Finds the bytes of a piece. `*entry` is reused, and is that of the sample then. DataLoss if the index and the
  /// table do not agree.
  absl::StatusOr<Place> Find(const Segment& piece, IndexedSample* entry) const;

  absl::StatusOr<RowGroup> ReadGroup(uint64_t number) const;
  /// Returns the stored bytes of the tokens of a row.
  uint64_t max_row_bytes() const { return table_.length() * type_.size; }
  double mean_row_bytes() const;

 private:
  Subset samples_;
  std::string field_;
  NumberType type_;
  SharedArtifact file_;
  RowTable table_;
};

/// Keeps the groups of rows that were used last. Not thread-safe.
class RowGroups {
 public:
  /// Takes about that much memory; one group is kept in any case.
  explicit RowGroups(uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  /// Returns the group of a row. `part` tells the tables of a source apart.
  absl::StatusOr<std::shared_ptr<const RowGroup>> Get(const TokenRows& rows, size_t part, uint64_t row);

 private:
  using Key = std::pair<size_t, uint64_t>;
  struct Entry {
    Key key;
    std::shared_ptr<const RowGroup> group;
    uint64_t bytes = 0;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return HashKey(key.first, {key.second}); }
  };

  const uint64_t memory_bytes_;
  uint64_t used_ = 0;
  std::list<Entry> entries_;  // latest first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> found_;
};

/// Finds the rows of a subset: one table for each bucket, or one table if there are no buckets. They are found with the
/// index, or made from it and kept there (`.millrace/packs-LENGTH-KEY`); docs/formats/packs.md. Walks the index once
/// for each table that is not there. Blocking; `task` counts samples, on the calling thread. Errors: InvalidArgument
/// (options), FailedPrecondition (a field that holds no tokens, a sample that is too long and refused), Cancelled,
/// those of reading the index and of keeping files.
absl::StatusOr<std::vector<std::shared_ptr<const TokenRows>>> FindRows(Stores& stores, const Subset& samples,
                                                                       const TokenOptions& options,
                                                                       const LongTask& task = {});

}  // namespace millrace
