#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "dataset/index.h"
#include "pack/pack_job.h"
#include "shard/shard_sample.h"

/// A fragment is the piece of the index that belongs to one shard, written when the shard is complete. When there is
/// one for each shard, they are merged. docs/formats/pack.md describes the bytes.

namespace millrace {

/// Makes a fragment while its samples come. Memory: some fifty bytes a sample.
class FragmentWriter {
 public:
  void Add(const ShardSample& sample);
  /// Returns the bytes of the fragment.
  std::string Finish(const IndexedObject& shard, const std::vector<SkippedSample>& skipped) const;

 private:
  std::string samples_;
  uint64_t count_ = 0;
};

struct Fragment {
  IndexedObject shard;
  std::vector<SkippedSample> skipped;
  uint64_t samples = 0;
};

/// Parses a fragment and hands out its samples, without their spans. DataLoss if it is damaged.
absl::StatusOr<Fragment> ReadFragment(ByteSpan bytes, ShardSink each);

}  // namespace millrace
