#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "shard/tar_reader.h"

namespace millrace {

/// More fields than this in one sample are taken for a mistake in its names.
inline constexpr size_t kMaxSampleFields = 1024;

struct TarSampleField {
  std::string name;
  uint64_t offset = 0;  // of the archive
  uint64_t length = 0;
};

/// Consecutive members with one key.
struct TarSample {
  std::string key;
  std::vector<TarSampleField> fields;  // as they are stored
  ByteRange span;                      // from the first field's first byte to the last field's last one
  uint32_t crc32c = 0;                 // of the span
  std::string label;                   // contents of the field `cls` when it is a short decimal number, else ""
};

/// Finds the samples of a tar shard by WebDataset's rules (sample_name.h; members that are not regular files are
/// skipped) and their checksums, in one pass over its bytes. A field that comes twice in a sample is DataLoss;
/// other errors are those of TarReader. Memory is that of one sample's names. Not thread-safe.
class TarSampleScanner {
 public:
  /// Gets each sample once; valid during the call. An error ends the scan and is returned.
  using Sink = absl::FunctionRef<absl::Status(const TarSample&)>;

  /// The next bytes of the shard, in order, from its first one.
  absl::Status Feed(ByteSpan chunk, Sink sink);

  /// After the last byte: hands out the last sample. DataLoss when the shard is truncated.
  absl::Status Finish(Sink sink);

 private:
  absl::Status AddMember(ByteSpan chunk, Sink sink);
  absl::Status Emit(Sink sink);
  void HashUntil(ByteSpan chunk, uint64_t offset);
  void EndField();

  TarReader reader_;
  uint64_t chunk_offset_ = 0;  // of the chunk that is being fed
  bool ended_ = false;         // what follows is ignored
  TarSample sample_;           // no fields: none begun
  std::string label_;
  bool in_field_ = false;      // the end of the latest field has not been reached yet
  uint64_t hashed_until_ = 0;  // running_crc_ covers the bytes from the span's first one to here
  uint32_t running_crc_ = 0;
};

}  // namespace millrace
