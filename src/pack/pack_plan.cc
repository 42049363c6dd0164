#include "pack/pack_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace millrace {

namespace {

bool HasImage(const SampleShape& sample) {
  return std::any_of(sample.fields.begin(), sample.fields.end(),
                     [](const FieldShape& field) { return !field.image.empty(); });
}

// Returns the max size of a sample's entry in the fragment of its shard (fragment.h).
uint64_t EntryBytes(const SampleShape& sample, const ShardEncoder& encoder) {
  constexpr uint64_t kRecordKeyBytes = 32;  // of the place, which is the key where the format keeps none
  constexpr uint64_t kAroundSample = 28;    // lengths, CRC, the number of a class
  constexpr uint64_t kAroundField = 28;     // lengths, encoding, place
  uint64_t bytes = (encoder.KeepsNames() ? sample.key.size() : kRecordKeyBytes) + kAroundSample;
  for (const FieldShape& field : sample.fields) bytes += field.name.size() + kAroundField;
  return bytes;
}

class Planner {
 public:
  Planner(const ShardEncoder& encoder, uint64_t shard_bytes) : encoder_(encoder), limit_(shard_bytes) {}

  absl::Status Add(uint64_t position, const SampleShape& shape) {
    if (position > 0 && shape.key == last_key_ && encoder_.KeysTellSamplesApart()) {
      return absl::InvalidArgumentError(
          fmt::format("two samples in a row have the key '{}', which in a shard would make them one. Files whose names "
                      "differ only behind the first dot cannot be packed apart; rename one of them",
                      shape.key));
    }
    last_key_ = shape.key;
    ASSIGN_OR_RETURN(const uint64_t bytes, encoder_.SampleBytes(shape));
    const uint64_t grown = samples_bytes_ + bytes;
    if (plan_.starts.empty() || grown > limit_ || limit_ - grown < encoder_.OverheadBytes(samples_ + 1) ||
        samples_ == encoder_.MaxShardSamples()) {
      RETURN_IF_ERROR(BeginShard(position));
    }
    samples_bytes_ += bytes;
    entries_bytes_ += EntryBytes(shape, encoder_);
    ++samples_;
    return absl::OkStatus();
  }

  PackPlan Finish(uint64_t samples) {
    EndShard();
    plan_.starts.push_back(samples);
    return std::move(plan_);
  }

 private:
  absl::Status BeginShard(uint64_t position) {
    EndShard();
    if (plan_.starts.size() == kMaxShards)
      return absl::InvalidArgumentError(fmt::format("more than {} shards: raise --shard-size", kMaxShards));
    plan_.starts.push_back(position);
    return absl::OkStatus();
  }

  void EndShard() {
    if (!plan_.starts.empty()) plan_.bytes.push_back(samples_bytes_ + encoder_.OverheadBytes(samples_));
    plan_.most_samples = std::max(plan_.most_samples, samples_);
    plan_.most_entries = std::max(plan_.most_entries, entries_bytes_);
    samples_bytes_ = entries_bytes_ = samples_ = 0;
  }

  const ShardEncoder& encoder_;
  const uint64_t limit_;
  PackPlan plan_;
  uint64_t samples_bytes_ = 0;  // of the open shard
  uint64_t entries_bytes_ = 0;  // likewise
  uint64_t samples_ = 0;        // likewise
  std::string last_key_;
};

}  // namespace

uint64_t PackPlan::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

absl::StatusOr<PackPlan> MakePackPlan(const Index& index, const SampleOrder& order, const SampleView& view,
                                      const ShardEncoder& encoder, uint64_t shard_bytes) {
  Planner planner(encoder, std::min(shard_bytes, encoder.MaxShardBytes()));
  IndexedSample sample;
  PackedSample packed;
  uint64_t without_image = 0;
  std::string first_without_image;
  bool converts = false;
  uint64_t largest_sample = 0;
  uint64_t lacking_fields = 0;
  std::string first_lacking;
  for (uint64_t position = 0; position < order.size(); ++position) {
    RETURN_IF_ERROR(index.Lookup(order.At(position), &sample));
    RETURN_IF_ERROR(ShapeOf(sample, view, &packed));
    RETURN_IF_ERROR(planner.Add(position, packed.shape));
    if (!HasImage(packed.shape) && without_image++ == 0) first_without_image = sample.key;
    converts = converts || !packed.is_exact;
    largest_sample = std::max(largest_sample, packed.most_bytes);
    if (packed.shape.fields.size() < view.fields.size() && lacking_fields++ == 0) first_lacking = sample.key;
  }
  PackPlan plan = planner.Finish(order.size());
  plan.without_image = without_image;
  plan.first_without_image = std::move(first_without_image);
  plan.lacking_fields = lacking_fields;
  plan.first_lacking_fields = std::move(first_lacking);
  plan.converts = converts;
  plan.largest_sample = largest_sample;
  for (const uint64_t bytes : plan.bytes) plan.largest_shard = std::max(plan.largest_shard, bytes);
  return plan;
}

}  // namespace millrace
