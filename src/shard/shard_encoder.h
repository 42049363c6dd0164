#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "shard/data_kind.h"
#include "shard/field_value.h"
#include "shard/mds_format.h"

namespace millrace {

/// Describes the shape of a sample before its bytes come: its fields in the order in which their values will come.
struct FieldShape {
  std::string name;
  uint64_t length = 0;  // of the value (field_value.h)
  FieldType type = FieldType::kBytes;
  std::string image;  // encoding::kJpeg or kPng of what is known to be such a file, else ""
  std::optional<std::string> value = std::nullopt;  // where it is known
  bool is_empty_array = false;                      // it is known to be an array without values
  std::string source_name;                          // its name in --field, if that is another one

  const std::string& NameInSource() const { return source_name.empty() ? name : source_name; }
};
struct SampleShape {
  std::string key;
  std::vector<FieldShape> fields;
};

/// Turns samples into the bytes of shards of one format. SampleBytes and OverheadBytes, which are pure, say how large a
/// shard of given samples will be, so that shards can be planned without bytes. Then, for each shard, as a state
/// machine without I/O:
///
///   Begin(), { BeginSample(shape), Add(the values, in pieces of any size) } for each, End()
///
/// `out` gets the shard's bytes, piece by piece, from the first to the last. Not thread-safe; after an error call Begin
/// again.
class ShardEncoder {
 public:
  using Sink = absl::FunctionRef<absl::Status(ByteSpan)>;

  virtual ~ShardEncoder() = default;

  virtual DataKind kind() const = 0;
  /// Says which memory a sample or shard takes besides its shape: nothing, some copies of the sample, or these and two
  /// of the shard.
  enum class Holds : uint8_t { kNothing, kSample, kShard };
  virtual Holds holds() const = 0;
  /// Returns whether SampleBytes and OverheadBytes are exactly the bytes that will come out, and not about as many.
  virtual bool IsExact() const = 0;
  /// Returns whether readers find samples and fields under the names that they had.
  virtual bool KeepsNames() const = 0;
  /// Returns whether readers would take two samples with one key, one after the other, for one.
  virtual bool KeysTellSamplesApart() const = 0;
  /// No shard can be larger, or hold more samples.
  virtual uint64_t MaxShardBytes() const = 0;
  virtual uint64_t MaxShardSamples() const { return UINT64_MAX; }

  /// Returns the bytes that a sample takes in a shard. Returns InvalidArgument if the format cannot hold the sample, as
  /// far as the shape shows. BeginSample, Add and End report errors that only the values show.
  virtual absl::StatusOr<uint64_t> SampleBytes(const SampleShape& sample) const = 0;
  /// Returns the bytes beside the samples, of a shard that holds that many.
  virtual uint64_t OverheadBytes(uint64_t samples) const = 0;

  virtual absl::Status Begin(Sink out) = 0;
  virtual absl::Status BeginSample(const SampleShape& sample, Sink out) = 0;
  /// Adds the next bytes of the sample's values, one field right after the other. Returns Internal if there are too
  /// many.
  virtual absl::Status Add(ByteSpan bytes, Sink out) = 0;
  /// Returns Internal if the last sample is not complete.
  virtual absl::Status End(Sink out) = 0;

  /// After End, returns the contents of the object that other programs expect beside the shard, under its name with
  /// kCompanionSuffix; "" for formats without one.
  virtual std::string Companion() const { return {}; }
};

inline constexpr std::string_view kCompanionSuffix = ".idx";

/// Returns the columns of MDS for samples like this one. Returns InvalidArgument if MDS cannot hold the sample.
absl::StatusOr<std::vector<MdsColumn>> MdsColumnsOf(const SampleShape& sample);

/// Returns an encoder for shards of that kind, neither kRawObjects nor kTokens, of a data set in which `first` is a
/// sample; those of MDS must all have its fields. Returns InvalidArgument when the format cannot hold it.
absl::StatusOr<std::unique_ptr<ShardEncoder>> MakeShardEncoder(DataKind kind, const SampleShape& first);

}  // namespace millrace
