#include "store/whole_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/rng.h"
#include "s3/checksum.h"

namespace millrace {
namespace {

using Kind = ObjectChecksum::Kind;
using ::testing::HasSubstr;

class WholeCheckTest : public ::testing::TestWithParam<Kind> {
 protected:
  WholeCheckTest() {
    Rng rng(5);
    for (char& c : text_) c = static_cast<char>(rng.Next());
    info_.size = text_.size();
  }

  /// As the store tells it: of the bytes, or of the checksums of parts.
  ObjectChecksum Stored(uint64_t part_bytes) const {
    ObjectChecksum checksum{GetParam(), DigestOf(GetParam(), AsBytes(text_))};
    if (part_bytes == 0) return checksum;
    std::string digests;
    for (size_t at = 0; at < text_.size(); at += part_bytes, ++checksum.parts)
      digests += DigestOf(GetParam(), AsBytes(std::string_view(text_).substr(at, part_bytes)));
    checksum.digest = DigestOf(GetParam(), AsBytes(digests));
    return checksum;
  }

  /// Adds all pieces but those left out, in an order by chance; `damaged` comes with another byte.
  void AddAll(WholeCheck& check, const Pieces& pieces, std::optional<size_t> damaged = {}) {
    std::vector<size_t> order(pieces.count());
    std::iota(order.begin(), order.end(), 0);
    Rng rng(9);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
    for (const size_t i : order) {
      std::string bytes = text_.substr(pieces.At(i).offset, pieces.At(i).length);
      if (i == damaged) bytes[bytes.size() / 2] ^= 1;
      news_ += check.Add(i, AsBytes(bytes)) ? 1 : 0;
    }
  }

  std::string text_ = std::string(10'007, '\0');
  ObjectInfo info_;
  size_t news_ = 0;
};

TEST_P(WholeCheckTest, TakesPiecesInAnyOrder) {
  for (const uint64_t about : {100, 1000, 20'000}) {
    info_.checksum = Stored(0);
    const Pieces pieces(info_.size, 0, about);
    WholeCheck check("s3://b/k", info_, pieces);
    EXPECT_TRUE(check.checks());
    AddAll(check, pieces);
    EXPECT_TRUE(check.Finish().ok()) << about;
    WholeCheck damaged("s3://b/k", info_, pieces);
    AddAll(damaged, pieces, pieces.count() - 1);
    EXPECT_EQ(damaged.Finish().code(), absl::StatusCode::kDataLoss) << about;
    EXPECT_THAT(ToStd(damaged.Finish().message()), HasSubstr("s3://b/k: what arrived does not match the "));
  }
}

TEST_P(WholeCheckTest, WhatIsDamagedIsReadOnceMore) {
  info_.checksum = Stored(0);
  const Pieces pieces(info_.size, 0, 1000);
  for (const bool heals : {true, false}) {
    WholeCheck check("s3://b/k", info_, pieces);
    AddAll(check, pieces, 3);
    int again = 0;
    const absl::Status status = check.Settle([&] {
      ++again;
      news_ = 0;
      AddAll(check, pieces, heals ? std::nullopt : std::optional<size_t>(4));
      return absl::OkStatus();
    });
    EXPECT_EQ(again, 1);
    EXPECT_EQ(status.ok(), heals) << status;
    EXPECT_EQ(news_, heals ? 1u : 2u) << "only what came differently is to be written again";
    if (!heals) {
      EXPECT_THAT(ToStd(status.message()), HasSubstr("twice in a row"));
    }
  }
}

TEST_P(WholeCheckTest, WhatIsSoundIsNotReadAgain) {
  info_.checksum = Stored(0);
  const Pieces pieces(info_.size, 0, 1000);
  WholeCheck check("s3://b/k", info_, pieces);
  AddAll(check, pieces);
  EXPECT_TRUE(check.Settle([] { return absl::InternalError("read again"); }).ok());
}

TEST_P(WholeCheckTest, AnErrorOfTheSecondReadingIsPassedOn) {
  info_.checksum = Stored(0);
  const Pieces pieces(info_.size, 0, 1000);
  WholeCheck check("s3://b/k", info_, pieces);
  AddAll(check, pieces, 0);
  EXPECT_EQ(check.Settle([] { return absl::NotFoundError("gone"); }).code(), absl::StatusCode::kNotFound);
}

TEST_P(WholeCheckTest, ChecksumsOfPartsAreMadeOfPiecesWithinThem) {
  info_.part_bytes = 3000;
  info_.checksum = Stored(3000);
  for (const uint64_t about : {100, 700, 3000}) {
    const Pieces pieces(info_.size, info_.part_bytes, about);
    WholeCheck check("s3://b/k", info_, pieces);
    EXPECT_TRUE(check.checks());
    AddAll(check, pieces);
    EXPECT_TRUE(check.Settle([] { return absl::InternalError("read again"); }).ok()) << about;
    WholeCheck damaged("s3://b/k", info_, pieces);
    AddAll(damaged, pieces, 2);
    int again = 0;
    const absl::Status healed = damaged.Settle([&] {
      ++again;
      AddAll(damaged, pieces);
      return absl::OkStatus();
    });
    EXPECT_TRUE(healed.ok()) << healed;
    EXPECT_EQ(again, 1);
  }
}

TEST_P(WholeCheckTest, ThatPartsAreNotAsTheySeemedIsNoDamage) {
  info_.part_bytes = 3001;  // the same number of parts
  info_.checksum = Stored(3000);
  const Pieces pieces(info_.size, info_.part_bytes, 1000);
  WholeCheck check("s3://b/k", info_, pieces);
  AddAll(check, pieces);
  EXPECT_TRUE(check.Finish().ok());
  const auto same_again = [&] {
    AddAll(check, pieces);
    return absl::OkStatus();
  };
  EXPECT_TRUE(check.Settle(same_again).ok());
  // But what changes from one reading to the next is damaged.
  const auto another = [&] {
    AddAll(check, pieces, 1);
    return absl::OkStatus();
  };
  EXPECT_EQ(check.Settle(another).code(), absl::StatusCode::kDataLoss);
}

TEST_P(WholeCheckTest, WhereNothingCanBeComparedNothingIs) {
  const auto checks = [&](uint64_t about) {
    return WholeCheck("s3://b/k", info_, Pieces(info_.size, info_.part_bytes, about)).checks();
  };
  EXPECT_FALSE(checks(1000));
  info_.checksum = Stored(3000);
  EXPECT_FALSE(checks(1000)) << "the parts are not known";
  info_.part_bytes = 3000;
  EXPECT_TRUE(checks(1000));
  EXPECT_FALSE(checks(20'000)) << "a piece is made of several parts";
  info_.part_bytes = 2000;
  EXPECT_FALSE(checks(1000)) << "not so many parts";
  info_.checksum = ObjectChecksum{Kind::kMd5, std::string(16, 'x')};
  EXPECT_FALSE(checks(1000));
  WholeCheck check("s3://b/k", info_, Pieces(info_.size, 0, 1000));
  EXPECT_TRUE(check.Add(0, AsBytes("whatever")));
  EXPECT_TRUE(check.Add(0, AsBytes("whatever")));
  EXPECT_TRUE(check.Finish().ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, WholeCheckTest, ::testing::Values(Kind::kCrc32, Kind::kCrc32c, Kind::kCrc64Nvme),
                         [](const auto& kind) { return std::string(ChecksumKindName(kind.param)); });

}  // namespace
}  // namespace millrace
