#include "store/s3_upload.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/crypto.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/testing/devstore_bucket.h"

namespace millrace {
namespace {

absl::Status WriteCheckedBlocking(PieceWriter& writer, size_t index, uint64_t offset, ByteSpan bytes, uint32_t crc32c) {
  Completion<absl::Status> written;
  writer.Write(index, offset, bytes, crc32c, written.Callback());
  return written.Wait();
}

absl::Status WritePieceBlocking(PieceWriter& writer, size_t index, uint64_t offset, ByteSpan bytes) {
  Completion<absl::Status> written;
  writer.Write(index, offset, bytes, std::nullopt, written.Callback());
  return written.Wait();
}

absl::Status CopyPieceBlocking(PieceWriter& writer, size_t index, uint64_t offset, const ObjectInfo& source,
                               ByteRange range) {
  Completion<absl::Status> copied;
  dynamic_cast<PieceCopier&>(writer).Copy(index, offset, source, range, copied.Callback());
  return copied.Wait();
}

// The store holds what has arrived against the checksum that the caller has made, and not against one of the bytes that
// the upload has found later.
TEST(S3UploadTest, AKnownChecksumIsSentAsItIs) {
  const DevstoreBucket bucket({.root = "mem:"}, [](S3Config& config) { config.max_attempts = 1; });
  const auto client = bucket.NewClient();
  const std::string text = SeededBytes(6 << 20, 1);
  const ByteSpan first = AsBytes(text).first(kMinPartBytes);
  const ByteSpan second = AsBytes(text).subspan(kMinPartBytes);
  auto writer = client->store.WritePieces("key", {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const absl::Status refused = WriteCheckedBlocking(**writer, 0, 0, first, Crc32c(first) ^ 1);
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  absl::Status written = WriteCheckedBlocking(**writer, 0, 0, first, Crc32c(first));
  EXPECT_TRUE(written.ok()) << written;
  written = WriteCheckedBlocking(**writer, 1, first.size(), second, Crc32c(second));
  EXPECT_TRUE(written.ok()) << written;
  const absl::StatusOr<ObjectInfo> committed = CommitBlocking(**writer, text.size());
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(*ReadAll(client->store, "key", text.size()), text);
}

TEST(S3UploadTest, PiecesAreCopiedAndWritten) {
  const DevstoreBucket bucket({.root = "mem:"});
  const auto client = bucket.NewClient();
  const std::string text = SeededBytes(6 << 20, 1);
  ASSERT_TRUE(PutBlocking(client->store, "key", AsBytes(text)).ok());
  const ObjectInfo source = *HeadBlocking(client->store, "key");
  {
    auto writer = client->store.WritePieces("key", {.if_match = source.etag});
    ASSERT_TRUE(writer.ok()) << writer.status();
    absl::Status copied = CopyPieceBlocking(**writer, 0, 0, source, {0, text.size()});
    ASSERT_TRUE(copied.ok()) << copied;
    const absl::Status written = WritePieceBlocking(**writer, 1, text.size(), AsBytes("tail"));
    ASSERT_TRUE(written.ok()) << written;
    const absl::StatusOr<ObjectInfo> committed = CommitBlocking(**writer, text.size() + 4);
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(*ReadAll(client->store, "key", text.size() + 4), text + "tail");
  }
  // The source is another one by now.
  auto late = client->store.WritePieces("key", {});
  const absl::Status refused = CopyPieceBlocking(**late, 0, 0, source, {0, text.size()});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  // An upload that has begun with checksums takes no copies.
  auto other = client->store.WritePieces("key", {});
  ASSERT_TRUE(WritePieceBlocking(**other, 1, text.size(), AsBytes("tail")).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CopyPieceBlocking(**other, 0, 0, source, {0, text.size()})));
}

}  // namespace
}  // namespace millrace
