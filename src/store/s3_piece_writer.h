#pragma once

#include <memory>
#include <string>

#include "store/object_store.h"
#include "store/piece_ledger.h"
#include "store/s3_upload.h"

namespace millrace {

/// Writes an object of known size: its pieces are the parts of a multipart upload, sent straight from the caller's
/// buffers. A stop (PutOptions) cancels the pieces in flight.
class S3PieceWriter final : public PieceWriter {
 public:
  static constexpr PieceLimits kLimits{.least_bytes = kMinPartBytes, .most_pieces = kMaxParts};

  /// Blocking: creates the upload.
  static absl::StatusOr<std::unique_ptr<PieceWriter>> Create(S3Client& client, std::string bucket, std::string key,
                                                             Pieces pieces, PutOptions options);

  void Write(size_t index, ByteSpan bytes, DoneCallback done) override;
  absl::StatusOr<ObjectInfo> Commit() override;

 private:
  S3PieceWriter(S3Client& client, std::string bucket, std::string key, Pieces pieces, PutOptions options);

  const std::string uri_;
  const Pieces pieces_;
  PieceLedger ledger_;
  S3Upload upload_;  // last: its callbacks end before the rest goes
};

}  // namespace millrace
