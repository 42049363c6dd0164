#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"

/// All scanners of shards have this output.

namespace millrace {

/// More fields than this in one sample are probably a mistake in its names, and are refused.
inline constexpr size_t kMaxSampleFields = 1024;

struct ShardField {
  std::string name;
  uint64_t offset = 0;  // of the shard
  uint64_t length = 0;
  std::string encoding;  // how the stored bytes become the value (field_value.h); "": they are the value
};

struct ShardSample {
  std::string key;
  std::vector<ShardField> fields;  // as they are stored
  ByteRange span;                  // from the first field's first byte to the last field's last one
  uint32_t crc32c = 0;             // of the span
  std::string label;               // value of the field `cls` if it is a short decimal number, else ""
};

/// Gets each sample of a shard once, in order; valid during the call. An error ends the scan and is returned.
using ShardSink = absl::FunctionRef<absl::Status(const ShardSample&)>;

}  // namespace millrace
