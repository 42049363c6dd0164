#include "store/pieces.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr uint64_t kPieceMiB = 1 << 20;

std::vector<uint64_t> Lengths(const Pieces& pieces) {
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i < pieces.count(); ++i) lengths.push_back(pieces.At(i).length);
  return lengths;
}

TEST(Pieces, WithoutPartsAreOfOneLength) {
  EXPECT_EQ(Lengths(Pieces(20 * kPieceMiB, 0)), (std::vector<uint64_t>{8 * kPieceMiB, 8 * kPieceMiB, 4 * kPieceMiB}));
  EXPECT_EQ(Lengths(Pieces(16 * kPieceMiB, 0)), (std::vector<uint64_t>{8 * kPieceMiB, 8 * kPieceMiB}));
  EXPECT_EQ(Lengths(Pieces(1, 0)), (std::vector<uint64_t>{1}));
  EXPECT_EQ(Pieces(0, 0).count(), 0u);
  EXPECT_EQ(Pieces(10, 0).largest(), 10u);
}

TEST(Pieces, KeepToTheParts) {
  // A part stays as it is, large ones are divided evenly, small ones are taken together.
  EXPECT_EQ(Lengths(Pieces(25 * kPieceMiB, 10 * kPieceMiB)),
            (std::vector<uint64_t>{10 * kPieceMiB, 10 * kPieceMiB, 5 * kPieceMiB}));
  EXPECT_EQ(Lengths(Pieces(11 * kPieceMiB, 5 * kPieceMiB)),
            (std::vector<uint64_t>{5 * kPieceMiB, 5 * kPieceMiB, kPieceMiB}));
  EXPECT_EQ(Pieces(1000 * kPieceMiB, 50 * kPieceMiB).At(0).length, 10 * kPieceMiB) << "six would not be of one length";
  EXPECT_EQ(Pieces(1000 * kPieceMiB, 64 * kPieceMiB).At(0).length, 8 * kPieceMiB);
  EXPECT_EQ(Pieces(1000 * kPieceMiB, 3 * kPieceMiB).At(0).length, 6 * kPieceMiB);
  EXPECT_EQ(Pieces(1000 * kPieceMiB, 4 * kPieceMiB).At(0).length, 4 * kPieceMiB);
  EXPECT_EQ(Pieces(20 * kPieceMiB, 30 * kPieceMiB).At(0).length, 8 * kPieceMiB) << "it has but one part";
}

TEST(Pieces, KnowWhichOfThemAreParts) {
  const Pieces parts(25 * kPieceMiB, 10 * kPieceMiB);
  EXPECT_TRUE(parts.IsPart(0) && parts.IsPart(1) && parts.IsPart(2));
  const Pieces divided(130 * kPieceMiB + 5, 64 * kPieceMiB);
  for (size_t i = 0; i + 1 < divided.count(); ++i) EXPECT_FALSE(divided.IsPart(i)) << i;
  EXPECT_TRUE(divided.IsPart(divided.count() - 1)) << "the last part is small";
  EXPECT_FALSE(Pieces(25 * kPieceMiB, 2 * kPieceMiB).IsPart(0));
  EXPECT_FALSE(Pieces(25 * kPieceMiB, 0).IsPart(0));
}

TEST(Pieces, StayWithinTheLimitsOfAStore) {
  constexpr PieceLimits kS3{.least_bytes = 5 * kPieceMiB, .most_pieces = 10'000};
  EXPECT_EQ(Pieces(100 * kPieceMiB, 4 * kPieceMiB, kPieceBytes, kS3).At(0).length, 8 * kPieceMiB);
  EXPECT_EQ(Pieces(uint64_t{100} << 30, 0, kPieceBytes, kS3).At(0).length, 16 * kPieceMiB);
  EXPECT_EQ(Pieces(uint64_t{5} << 40, 0, kPieceBytes, kS3).count(), 5u * 1024);
  EXPECT_EQ(Pieces(uint64_t{100} << 30, 16 * kPieceMiB, kPieceBytes, kS3).At(0).length, 16 * kPieceMiB);
}

TEST(Pieces, OfAPartThatNobodyHasAreFoundAllTheSame) {
  // A prime number of bytes has no even division.
  const Pieces pieces(uint64_t{1} << 48, (uint64_t{1} << 48) - 59, uint64_t{64} << 10);
  EXPECT_GE(pieces.largest(), uint64_t{60} << 10);
  EXPECT_LE(pieces.largest(), uint64_t{68} << 10);
}

TEST(Pieces, TileTheObjectWhateverItsParts) {
  Rng rng(3);
  for (int round = 0; round < 3000; ++round) {
    const uint64_t about = uint64_t{1} << rng.Below(12);
    const uint64_t size = rng.Below(20'000);
    const uint64_t part = rng.Below(3) == 0 ? 0 : rng.Below(5000);
    PieceLimits limits;
    if (rng.Below(2) == 0) limits = {.least_bytes = 1 + rng.Below(about), .most_pieces = 1 + rng.Below(200)};
    const Pieces pieces(size, part, about, limits);
    const bool parts = part != 0 && part < size;
    SCOPED_TRACE(::testing::Message() << "size " << size << " part " << part << " about " << about << " least "
                                      << limits.least_bytes << " most " << limits.most_pieces);
    ASSERT_LE(pieces.count(), limits.most_pieces);
    uint64_t end = 0;
    for (size_t i = 0; i < pieces.count(); ++i) {
      const ByteRange piece = pieces.At(i);
      ASSERT_EQ(piece.offset, end);
      ASSERT_GT(piece.length, 0u);
      ASSERT_LE(piece.length, pieces.largest());
      if (i + 1 < pieces.count()) {
        ASSERT_GE(piece.length, limits.least_bytes);
      }
      ASSERT_EQ(pieces.IndexOf(piece.offset), i);
      ASSERT_EQ(pieces.IndexOf(piece.end() - 1), i);
      end = piece.end();
      // A piece is within one part, or consists of whole parts.
      const bool within = parts && piece.offset / part == (end - 1) / part;
      const bool of_parts = parts && piece.offset % part == 0 && (end % part == 0 || end == size);
      if (parts) {
        ASSERT_TRUE(within || of_parts);
      }
      if (parts && part >= about / 2 && limits.most_pieces > 200) {
        ASSERT_TRUE(within);
      }
      ASSERT_EQ(pieces.IsPart(i), within && of_parts);
    }
    ASSERT_EQ(end, size);
    if (limits.most_pieces > 200) {
      ASSERT_LE(pieces.largest(), about + about / 2 + 1);
    }
  }
}

TEST(Pieces, InFlightAreBoundedByBytes) {
  EXPECT_EQ(PiecesInFlight(Pieces(1000 * kPieceMiB, 0)), 8u);
  EXPECT_EQ(PiecesInFlight(Pieces(1000 * kPieceMiB, 12 * kPieceMiB)), 8u);
  EXPECT_EQ(PiecesInFlight(Pieces(1000 * kPieceMiB, 11 * kPieceMiB)), 5u);
  EXPECT_EQ(PiecesInFlight(Pieces(uint64_t{5} << 40, 0, kPieceBytes, {.most_pieces = 10'000})), 2u);
}

}  // namespace
}  // namespace millrace
