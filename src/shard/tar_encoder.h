#pragma once

#include "shard/shard_encoder.h"

namespace millrace {

/// WebDataset shards: a member KEY.FIELD for each field, by tar_writer.h.
class TarEncoder final : public ShardEncoder {
 public:
  absl::StatusOr<uint64_t> SampleBytes(const SampleShape& sample) const override;
  uint64_t OverheadBytes(uint64_t samples) const override;
  bool KeysTellSamplesApart() const override { return true; }

  absl::Status Begin(std::span<const uint64_t> sample_bytes, Sink out) override;
  absl::Status BeginSample(const SampleShape& sample, Sink out) override;
  absl::Status Add(ByteSpan bytes, Sink out) override;
  absl::Status End(Sink out) override;

 private:
  absl::Status BeginField(Sink out);
  absl::Status EndField(Sink out);

  SampleShape sample_;
  size_t field_ = 0;   // whose bytes come next; as many as there are: the sample is complete
  uint64_t left_ = 0;  // of it
};

}  // namespace millrace
