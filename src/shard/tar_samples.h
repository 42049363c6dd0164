#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/shard_scanner.h"
#include "shard/tar_reader.h"

namespace millrace {

/// Adds a file to a sample whose key it has. DataLoss if the sample has that field already, InvalidArgument if it has
/// too many.
absl::Status AddTarField(const TarMember& member, std::string field, ShardSample* sample);

/// Finds the samples of a tar shard by WebDataset's rules (sample_name.h). Keys that Millrace escaped are unescaped.
/// Members that are not regular files are skipped; links and files with other names are counted. A sample ends with its
/// archive at the latest. A field that comes twice in a sample is DataLoss; other errors are those of
/// TarReader. Memory is that of one sample's names.
class TarSampleScanner final : public ShardScanner {
 public:
  absl::Status Feed(ByteSpan chunk, ShardSink sink) override;
  absl::Status Finish(ShardSink sink) override;
  uint64_t held_bytes() const override { return reader_.held_bytes(); }
  SkippedMembers skipped_members() const override { return skipped_; }

 private:
  absl::Status AddMember(ByteSpan chunk, ShardSink sink);
  absl::Status Emit(ShardSink sink);
  void HashUntil(ByteSpan chunk, uint64_t offset);
  void EndField();

  TarReader reader_;
  uint64_t chunk_offset_ = 0;  // of the chunk that is being fed
  SkippedMembers skipped_;
  ShardSample sample_;  // no fields: none begun
  std::string label_;
  bool in_field_ = false;      // the end of the latest field has not been reached yet
  uint64_t hashed_until_ = 0;  // running_crc_ covers the bytes from the span's first one to here
  uint32_t running_crc_ = 0;
};

}  // namespace millrace
