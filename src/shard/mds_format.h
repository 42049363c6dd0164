#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/number_type.h"

/// MDS of MosaicML Streaming has version 2. A shard is u32 n; u32 offset[n + 1] from its start; the columns as JSON; n
/// samples. A sample is a u32 size for each column without a fixed one, then the values of all columns. `index.json`
/// beside the shards lists them.

namespace millrace {

/// A shard's offsets have 32 bits.
inline constexpr uint64_t kMaxMdsShardBytes = UINT32_MAX;
inline constexpr uint64_t kMaxMdsColumnsBytes = uint64_t{16} << 20;  // of the JSON
inline constexpr uint64_t kMaxMdsSamples = uint64_t{1} << 24;        // of a shard

/// Lists the shards beside it.
inline constexpr std::string_view kMdsIndexName = "index.json";

/// This column holds a sample's key.
inline constexpr std::string_view kKeyColumn = "__key__";

struct MdsColumn {
  std::string name;
  std::string encoding;     // as MDS names it
  uint64_t fixed_size = 0;  // 0: each sample says it

  friend bool operator==(const MdsColumn&, const MdsColumn&) = default;
};

/// Returns how a value of MDS's encoding becomes one of field_value.h. Returns InvalidArgument for encodings that are
/// refused: `pkl`, which runs code when it is read, and unknown ones.
absl::StatusOr<std::string> EncodingOfMds(std::string_view mds_encoding);

/// Returns the code by which an array in MDS names the type of its values: their size in bits, plus 0 for unsigned, 1
/// for signed, 2 for floats.
uint8_t MdsTypeCode(NumberType type);
std::optional<NumberType> ParseMdsTypeCode(uint8_t code);

/// Returns the columns in the JSON of a shard. Returns DataLoss if it is not valid, InvalidArgument if it is of another
/// version or has no columns, too many, or two of one name.
absl::StatusOr<std::vector<MdsColumn>> ParseMdsColumns(std::string_view json);

/// This is an entry of index.json.
struct MdsShardEntry {
  std::string name;    // of the object beside it, when it is not compressed
  uint64_t bytes = 0;  // of that object
  uint64_t samples = 0;
  std::vector<std::pair<std::string, std::string>> hashes = {};  // names and hexadecimal digits, of that object
};

/// Returns the shards in an index.json. Returns DataLoss or InvalidArgument as above.
absl::StatusOr<std::vector<MdsShardEntry>> ParseMdsIndex(std::string_view json);

}  // namespace millrace
