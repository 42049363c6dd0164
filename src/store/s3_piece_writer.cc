#include "store/s3_piece_writer.h"

#include <fmt/format.h>

#include <utility>

#include "store/checks.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<PieceWriter>> S3PieceWriter::Create(S3Client& client, std::string bucket,
                                                                   std::string key, Pieces pieces, PutOptions options) {
  std::unique_ptr<S3PieceWriter> writer(
      new S3PieceWriter(client, std::move(bucket), std::move(key), pieces, std::move(options)));
  RETURN_IF_ERROR(writer->upload_.Create());
  return writer;
}

S3PieceWriter::S3PieceWriter(S3Client& client, std::string bucket, std::string key, Pieces pieces, PutOptions options)
    : uri_(fmt::format("s3://{}/{}", bucket, key)),
      pieces_(pieces),
      ledger_(pieces.count()),
      upload_(client, std::move(bucket), std::move(key), std::move(options)) {}

void S3PieceWriter::Write(size_t index, ByteSpan bytes, DoneCallback done) {
  absl::Status bad = CheckPiece(uri_, pieces_, index, bytes.size());
  if (!bad.ok()) return std::move(done)(std::move(bad));
  upload_.Send(index, bytes, [this, index, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) ledger_.Enter(index);
    std::move(done)(std::move(status));
  });
}

absl::StatusOr<ObjectInfo> S3PieceWriter::Commit() {
  RETURN_IF_ERROR(upload_.WaitFor(0));
  RETURN_IF_ERROR(ledger_.CheckAll(uri_));
  return upload_.Complete();
}

}  // namespace millrace
