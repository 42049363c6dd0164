#pragma once

#include "shard/shard_encoder.h"

namespace millrace {

/// Writes WebDataset shards: a global PAX header which says that keys are escaped (tar_key.h), then a member KEY.FIELD
/// for each field, by tar_writer.h.
class TarEncoder final : public ShardEncoder {
 public:
  DataKind kind() const override { return DataKind::kTar; }
  Holds holds() const override { return Holds::kNothing; }
  bool IsExact() const override { return true; }
  bool KeepsNames() const override { return true; }
  bool KeysTellSamplesApart() const override { return true; }
  uint64_t MaxShardBytes() const override;
  absl::StatusOr<uint64_t> SampleBytes(const SampleShape& sample) const override;
  uint64_t OverheadBytes(uint64_t samples) const override;

  absl::Status Begin(Sink out) override;
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
