#pragma once

#include <span>
#include <string>

#include "shard/shard_encoder.h"

namespace millrace {

/// Brings the values of a sample together, for formats that need all of them at once.
class SampleGatherer : public ShardEncoder {
 public:
  absl::Status Begin(Sink out) final;
  absl::Status BeginSample(const SampleShape& sample, Sink out) final;
  absl::Status Add(ByteSpan bytes, Sink out) final;
  absl::Status End(Sink out) final;

 protected:
  virtual absl::Status BeginShard() = 0;
  virtual absl::Status Encode(const std::string& key, std::span<const ValueField> fields, Sink out) = 0;
  virtual absl::Status EndShard(Sink out) = 0;

 private:
  absl::Status EncodeWhole(Sink out);

  SampleShape sample_;
  uint64_t total_ = 0;  // bytes of all its values
  std::string values_;  // those that have come
  bool whole_ = true;   // no sample is open
};

}  // namespace millrace
