#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// What is known of a sample before its bytes come: its fields in the order in which they will come.
struct FieldShape {
  std::string name;
  uint64_t length = 0;
};
struct SampleShape {
  std::string key;
  std::vector<FieldShape> fields;
};

/// Turns samples into the bytes of shards of one format. Sizes are known first: SampleBytes and OverheadBytes, which
/// are pure, say how large a shard of given samples will be, so that who plans shards needs no bytes, and a shard's
/// place can be made before it is written. Then, for each shard, as a state machine without I/O:
///
///   Begin(bytes of each sample), { BeginSample(shape), Add(its bytes, in pieces of any size) } for each, End()
///
/// What comes out through `out`, piece by piece, are the shard's bytes from the first to the last: as many as was
/// said. Memory: that of one shape, and of formats that store fields in an order of their own a sample. Not
/// thread-safe; after an error begin anew.
class ShardEncoder {
 public:
  using Sink = absl::FunctionRef<absl::Status(ByteSpan)>;

  virtual ~ShardEncoder() = default;

  /// Bytes that a sample takes in a shard. InvalidArgument for one that the format cannot hold.
  virtual absl::StatusOr<uint64_t> SampleBytes(const SampleShape& sample) const = 0;
  /// Bytes beside the samples, of a shard that holds that many.
  virtual uint64_t OverheadBytes(uint64_t samples) const = 0;
  /// Whether readers would take two samples with one key, one behind the other, for one.
  virtual bool KeysTellSamplesApart() const = 0;

  /// Starts a shard of samples that take so many bytes each.
  virtual absl::Status Begin(std::span<const uint64_t> sample_bytes, Sink out) = 0;
  virtual absl::Status BeginSample(const SampleShape& sample, Sink out) = 0;
  /// The next bytes of the sample's fields, one field right behind the other. Internal when they are too many.
  virtual absl::Status Add(ByteSpan bytes, Sink out) = 0;
  /// Internal when the last sample is not complete.
  virtual absl::Status End(Sink out) = 0;
};

}  // namespace millrace
