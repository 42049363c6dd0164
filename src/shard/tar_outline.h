#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/shard_sample.h"

/// These functions find the samples of a tar shard, without its bytes: another program has noted where they are. Pure.

namespace millrace {

/// Headers are between two files. If there is more, something else is there.
inline constexpr uint64_t kMaxTarGapBytes = 16 << 10;

/// Holds the parts of a shard that are read, besides the notes.
struct TarEnds {
  uint64_t shard_bytes = 0;
  ByteSpan head;  // its first bytes: kMaxTarGapBytes, or all
  ByteSpan tail;  // its last bytes: kMaxTarGapBytes, or all
};

/// Finds the samples of a shard by an index of wds2idx (wds_index.h), as TarSampleScanner finds them, but without CRCs
/// and labels. It may be called with a sink that takes nothing, to learn if the index fits. The headers before the
/// first file and everything after the last one are verified. Those between others are not: see FitsTarMember.
///
/// Returns InvalidArgument if the index cannot be used, DataLoss if it is not one of this shard; the messages complete
/// "INDEX: ...".
absl::Status OutlineTar(std::string_view wds_index, const TarEnds& shard, ShardSink sink);

/// Names a file in a tar shard, as an index has it.
struct TarFieldName {
  std::string_view key;
  std::string_view field;
};

/// Returns true if `gap` is right for the bytes in front of the data of a file. It ends with the header of the file,
/// and holds no other file of a sample. The gap begins after the data of the file before, and their padding.
bool FitsTarMember(ByteSpan gap, TarFieldName name, uint64_t size);

}  // namespace millrace
