#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <semaphore>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset.h"
#include "dataset/sample_reader.h"
#include "pack/destination.h"
#include "pack/fragment.h"
#include "pack/pack_plan.h"
#include "shard/shard_encoder.h"
#include "shard/shard_scanner.h"
#include "store/stream_writer.h"

namespace millrace {

/// Has the state that all shards of one pack share. Immutable; outlives the packers.
struct PackWork {
  const Dataset& source;
  const SampleOrder& order;
  const PackPlan& plan;
  const SampleView& view;
  const SampleShape& first;  // of all samples, as packed
  const PackDestination& destination;
  bool skip_bad = false;
  std::vector<std::string> class_names = {};  // PackOptions::class_names of what becomes `cls`
};

/// Writes shards, one at a time: the shard, then its fragment of the index. The written bytes also run through the
/// scanner that indexes foreign shards, so that the index is by construction the one that `millrace index` would build.
/// Blocking; not thread-safe, but several of them may work side by side.
class ShardPacker {
 public:
  /// Gets the bytes of shards that were written; they are taken back (negative) when a shard has to be written again.
  /// May be called at any rate.
  using Progress = std::function<void(int64_t bytes)>;

  /// Takes its buffers out of `memory`, which belongs to it alone; what it holds besides: packers.cc. The bytes of a
  /// shard are written in a turn of `turns`; what comes before and after is mostly waiting, and needs none.
  ShardPacker(const PackWork& work, MemoryBudget& memory, std::counting_semaphore<>& turns, Progress progress,
              std::stop_token stop)
      : work_(work), memory_(memory), turns_(turns), progress_(std::move(progress)), stop_(std::move(stop)) {}

  /// Writes nothing if another run has completed the shard meanwhile. With skip_bad, bad samples are left out. A sample
  /// is bad if it is damaged, gone, or no longer that of the index. It is bad if a field that is called an image does
  /// not begin as one. It is also bad if it is not of the type that the data set states, or if the format cannot hold
  /// it. When the first bad sample is met, the rest of the shard is read for others, and then the shard is written
  /// without them. A source that is gone as a whole, or cannot be read, is an error with skip_bad, too. No sample moves
  /// to another shard because of that. The samples that are left out are appended to `skipped`.
  absl::Status Pack(uint64_t shard, std::vector<SkippedSample>* skipped);

 private:
  using Bad = std::map<uint64_t, SkippedSample>;  // by position

  absl::Status Write(uint64_t shard, const std::string& stale_etag, const Bad& bad);
  absl::StatusOr<std::optional<uint64_t>> Measure(Positions positions, const std::set<uint64_t>& left_out);
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Open(uint64_t shard, const std::string& stale_etag,
                                                     std::optional<uint64_t> bytes);
  absl::Status WriteFragment(uint64_t shard, const ObjectInfo& info, const Bad& bad);
  absl::StatusOr<bool> IsGoneOrChanged(uint32_t object);
  std::string UriOf(uint32_t object) const;
  absl::Status WriteBytes(Positions positions, const std::set<uint64_t>& left_out);
  absl::StatusOr<std::optional<ObjectInfo>> Commit(uint64_t shard, const std::string& stale_etag);
  absl::Status Encode(Positions positions, const std::set<uint64_t>& left_out);
  absl::Status AddPart(const SampleReader::Part& part, ShardEncoder::Sink out);
  absl::Status AddStored(const SampleReader::Part& part, ShardEncoder::Sink out);
  absl::Status LookAtImage(const FieldShape& field, uint64_t length, uint64_t offset, ByteSpan bytes);
  absl::Status AddConverted(const SampleReader::Part& part, ShardEncoder::Sink out);
  absl::StatusOr<std::optional<std::vector<std::string>>> Converted(const SampleReader::Part& part);
  absl::Status CheckPart(const SampleReader::Part& part, Bad* bad);
  absl::Status Expect(ShardEncoder::Sink out);
  absl::Status Emit(ByteSpan bytes);
  absl::Status Index(const ShardSample& sample);
  absl::Status FindBad(Positions positions, Bad* bad);
  absl::Status AddUnreadable(uint64_t position, const absl::Status& status, Bad* bad);
  Positions PositionsOf(uint64_t shard) const {
    return {.begin = work_.plan.starts[shard], .end = work_.plan.starts[shard + 1]};
  }

  const PackWork& work_;
  MemoryBudget& memory_;
  std::counting_semaphore<>& turns_;
  const Progress progress_;
  const std::stop_token stop_;

  // This is the encoder of the shard that is being written.
  std::unique_ptr<ShardEncoder> encoder_;
  std::unique_ptr<ShardScanner> scanner_;
  std::unique_ptr<ObjectWriter> out_;
  FragmentWriter fragment_;
  std::string name_;
  std::deque<uint64_t> expected_;  // hashes of names that the scanner must find next
  PackedSample packed_;            // of the open sample
  std::string span_;               // what has come of it, where it is converted
  std::string begin_;              // the first bytes of its open field, where that is an image
  uint64_t samples_ = 0;           // that the scanner has found
  int64_t emitted_ = 0;
  Xxh3Stream digest_;  // of what was emitted

  std::map<uint32_t, bool> gone_;  // objects about which was asked: whether they are gone or changed
};

}  // namespace millrace
