#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "dataset/index.h"
#include "pack/class_map.h"
#include "plan/permutation.h"
#include "shard/shard_encoder.h"

/// Which sample goes to which shard: a pure function of the source's index, the order, the class map, the format and
/// the size of shards. Nobody needs to have written a shard to know what is in the next one, so shards are written
/// independently of each other: by threads, by machines, and after a kill only those that are missing.

namespace millrace {

/// Who comes where: the samples in index order, or shuffled by a seed. Immutable.
class PackOrder {
 public:
  explicit PackOrder(uint64_t samples) : samples_(samples) {}
  static PackOrder Shuffled(uint64_t samples, uint64_t seed);

  uint64_t size() const { return samples_; }
  /// The sample at a position < size().
  uint64_t At(uint64_t position) const { return permutation_ ? permutation_->At(position) : position; }

 private:
  uint64_t samples_;
  std::optional<Permutation> permutation_;
};

/// A sample as it will be packed: its fields in the order in which their bytes come, the inline ones first.
struct PackedSample {
  SampleShape shape;
  std::vector<std::string> inline_texts;  // of the first fields of the shape
  std::vector<IndexedField> stored;       // the others, in stored order
};

/// `classes` may be null: then inline classes keep their number among the sorted folders. InvalidArgument when the
/// class is not in the map, and for fields whose stored bytes are not their value (field_value.h): the length of that
/// is not known before they are read.
absl::Status ShapeOf(const IndexedSample& sample, const ClassMap* classes, PackedSample* out);

struct PackPlan {
  std::vector<uint64_t> starts;  // first position of each shard; the last entry: all samples
  std::vector<uint64_t> bytes;   // of each shard
  uint64_t without_image = 0;    // samples without a field that is an image
  std::string first_without_image;

  uint64_t shards() const { return bytes.size(); }
  uint64_t total_bytes() const;
};

/// More would not sort by their names, which have six digits.
inline constexpr uint64_t kMaxShards = 1'000'000;

/// Fills shards up to `shard_bytes`; only a sample that is larger makes a larger one. Walks the whole index, some
/// microseconds a sample. InvalidArgument, before anything is written, for samples that the format cannot hold or tell
/// apart, for classes that are not in the map, and for more than kMaxShards; DataLoss for a damaged index.
absl::StatusOr<PackPlan> MakePackPlan(const Index& index, const PackOrder& order, const ClassMap* classes,
                                      const ShardEncoder& encoder, uint64_t shard_bytes);

}  // namespace millrace
