#include <gmock/gmock.h>

#include <algorithm>

#include "store/blocking.h"
#include "store/completion.h"
#include "store/testing/contract.h"

/// These tests are the contract of ObjectStore, as far as it is about large objects: their pieces and their stored
/// parts.

namespace millrace {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr size_t kMiB = 1 << 20;

absl::Status WritePiece(PieceWriter& writer, size_t index, uint64_t offset, std::string_view bytes) {
  Completion<absl::Status> done;
  writer.Write(index, offset, AsBytes(bytes), std::nullopt, done.Callback());
  return done.Wait();
}

std::string_view PieceOf(std::string_view text, const Pieces& pieces, size_t index) {
  return text.substr(pieces.At(index).offset, pieces.At(index).length);
}

}  // namespace

TEST_P(StoreContract, PiecesLandInAnyOrderAndSeveralAtOnce) {
  PutText("k", "old contents");
  const std::string text = RandomText(31 * kMiB + 7);
  const Pieces pieces(text.size(), 10 * kMiB, kPieceBytes, store().traits().pieces);
  ASSERT_EQ(pieces.count(), 4u);
  auto writer = store().WritePieces("k", {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(WritePiece(**writer, 2, 20 * kMiB, std::string(10 * kMiB, 'x')).ok()) << "the later one counts";
  std::vector<Completion<absl::Status>> done(4);
  for (const size_t i : {3, 1, 2, 0})
    (*writer)->Write(i, pieces.At(i).offset, AsBytes(PieceOf(text, pieces, i)), std::nullopt, done[i].Callback());
  for (auto& one : done) {
    const absl::Status status = one.Wait();
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(Contents("k"), "old contents") << "nothing is visible before Commit";
  const auto info = CommitBlocking(**writer, text.size());
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->key, "k");
  EXPECT_EQ(info->size, text.size());
  EXPECT_EQ(info->etag, HeadBlocking(store(), "k")->etag);
  EXPECT_TRUE(Contents("k") == text);
}

TEST_P(StoreContract, OnePieceMayBeAll) {
  const Pieces pieces(5, 0, kPieceBytes, store().traits().pieces);
  auto writer = store().WritePieces("dir/k", {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(WritePiece(**writer, 0, 0, "hello").ok());
  EXPECT_TRUE(CommitBlocking(**writer, 5).ok());
  EXPECT_EQ(Contents("dir/k"), "hello");
}

TEST_P(StoreContract, APieceThatIsMissingIsNoObject) {
  const std::string text = RandomText(20 * kMiB);
  const Pieces pieces(text.size(), 0, kPieceBytes, store().traits().pieces);
  ASSERT_EQ(pieces.count(), 3u);
  for (const size_t missing : {0, 2}) {
    auto writer = store().WritePieces("k", {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (size_t i = 0; i < 3; ++i) {
      if (i != missing) {
        EXPECT_TRUE(WritePiece(**writer, i, pieces.At(i).offset, PieceOf(text, pieces, i)).ok());
      }
    }
    const absl::Status status = CommitBlocking(**writer, text.size()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(ToStd(status.message()), StartsWith(store().Uri("k")));
  }
  EXPECT_THAT(Keys(), IsEmpty());
}

TEST_P(StoreContract, AnUncommittedPieceWriterLeavesNothingBehind) {
  const std::string text = RandomText(20 * kMiB);
  const Pieces pieces(text.size(), 0, kPieceBytes, store().traits().pieces);
  {
    auto writer = store().WritePieces("dir/k", {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(WritePiece(**writer, i, pieces.At(i).offset, PieceOf(text, pieces, i)).ok());
  }
  EXPECT_THAT(Keys(), IsEmpty());
  PutText("dir/other", "x");
  EXPECT_THAT(Keys(), ElementsAre("dir/other"));
}

TEST_P(StoreContract, PiecesOnlyIfAbsentNeverReplace) {
  PutOptions absent;
  absent.only_if_absent = true;
  PutText("k", "first");
  const Pieces pieces(5, 0, kPieceBytes, store().traits().pieces);
  auto writer = store().WritePieces("k", absent);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(WritePiece(**writer, 0, 0, "other").ok());
  EXPECT_EQ(CommitBlocking(**writer, 5).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Contents("k"), "first");
}

TEST_P(StoreContract, RefusesWhatAreNoPieces) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(store().WritePieces("", {}).status().code(), kInvalid);
  auto writer = store().WritePieces("k", {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(WritePiece(**writer, 0, 0, "").code(), kInvalid);
  EXPECT_EQ(WritePiece(**writer, 0, UINT64_MAX, "four").code(), kInvalid);
  const PieceLimits limits = store().traits().pieces;
  if (limits.most_pieces <= 10'000) {
    EXPECT_EQ(WritePiece(**writer, limits.most_pieces, 0, "four").code(), kInvalid);
  }
  EXPECT_TRUE(WritePiece(**writer, 0, 0, "fifth").ok());
  EXPECT_EQ(WritePiece(**writer, 0, 0, "four").code(), kInvalid) << "of another length than before";
  EXPECT_EQ(WritePiece(**writer, 0, 1, "fifth").code(), kInvalid) << "of another place than before";
  EXPECT_THAT(Keys(), IsEmpty());
}

TEST_P(StoreContract, PiecesFollowEachOtherWithoutAGap) {
  const std::string text = RandomText(6 * kMiB);
  struct Case {
    std::vector<std::pair<size_t, uint64_t>> pieces;  // and their offsets; 6 MiB each
    absl::StatusCode code;
  };
  for (const Case& test :
       {Case{{}, absl::StatusCode::kFailedPrecondition}, Case{{{0, 1}}, absl::StatusCode::kFailedPrecondition},
        Case{{{0, 0}, {1, 7 * kMiB}}, absl::StatusCode::kFailedPrecondition},
        Case{{{0, 0}, {1, 5 * kMiB}}, absl::StatusCode::kFailedPrecondition},
        Case{{{0, 6 * kMiB}, {1, 0}}, absl::StatusCode::kFailedPrecondition},
        Case{{{1, 6 * kMiB}, {0, 0}}, absl::StatusCode::kOk}}) {
    auto writer = store().WritePieces("k", {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const auto& [index, offset] : test.pieces) EXPECT_TRUE(WritePiece(**writer, index, offset, text).ok());
    const absl::Status status = CommitBlocking(**writer, test.pieces.size() * text.size()).status();
    EXPECT_EQ(status.code(), test.code) << status;
    EXPECT_EQ(Keys().size(), status.ok() ? 1u : 0u);
  }
}

TEST_P(StoreContract, OnlyTheLastPieceMayBeShort) {
  if (store().traits().pieces.least_bytes <= 1) return;
  const std::string text = RandomText(kMiB);
  auto writer = store().WritePieces("k", {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const size_t i : {0, 1}) EXPECT_TRUE(WritePiece(**writer, i, i * kMiB, text).ok());
  EXPECT_EQ(CommitBlocking(**writer, 2 * kMiB).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreContract, HeadOfThePartsIsAHead) {
  const auto head = [&](const std::string& key) {
    Completion<absl::StatusOr<ObjectInfo>> done;
    store().Head(key, {.parts = true}, done.Callback());
    return done.Wait();
  };
  PutText("k", "contents");
  ASSERT_TRUE(head("k").ok()) << head("k").status();
  EXPECT_EQ(head("k")->size, 8u);
  EXPECT_EQ(head("k")->etag, HeadBlocking(store(), "k")->etag);
  EXPECT_EQ(head("k")->part_bytes, 0u);
  EXPECT_EQ(head("missing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(head("").status().code(), absl::StatusCode::kInvalidArgument);

  // An object that was written in pieces has them as its parts, or nobody knows of any.
  const std::string text = RandomText(14 * kMiB);
  const Pieces pieces(text.size(), 6 * kMiB, kPieceBytes, store().traits().pieces);
  auto writer = store().WritePieces("large", {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (size_t i = 0; i < pieces.count(); ++i)
    EXPECT_TRUE(WritePiece(**writer, i, pieces.At(i).offset, PieceOf(text, pieces, i)).ok());
  ASSERT_TRUE(CommitBlocking(**writer, text.size()).ok());
  const auto large = head("large");
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->size, text.size());
  EXPECT_THAT(large->part_bytes, ::testing::AnyOf(0u, 6 * kMiB));
}

}  // namespace millrace
