#include "service/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/crypto.h"

namespace millrace {
namespace {

struct Made {
  std::string pixels = "abcdefgh";
  std::string valid = "\1\1";
  Batch batch;
  std::string bytes;

  Made() {
    batch.size = 2;
    batch.valid = 2;
    batch.epoch = 3;
    batch.last_of_epoch = true;
    batch.position = {4, 0, 0x1234};
    batch.digest = {7, 9};
    batch.token_count = 5;
    batch.odd_images = 3;
    batch.value_bytes = 11;
    batch.keys = {"one", ""};
    batch.values = {{"text", BatchField::Kind::kText, {"hello", std::string("\0x", 2)}}};
    batch.quarantined = {{"s3://b/k", "truncated", "other", 3}};
    batch.arrays = {{"image", AsWritableBytes(pixels)}, {"valid", AsWritableBytes(valid)}};
    bytes = EncodeFrame(17, batch, ContentsCrc(batch)) + "hello" + std::string("\0x", 2) + pixels + valid;
  }
};

TEST(FrameTest, ComesBackAsItWas) {
  const Made made;
  const absl::StatusOr<WireBatch> frame = ParseFrame(AsBytes(made.bytes));
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->facts.sequence, 17u);
  EXPECT_EQ(frame->facts.size, 2u);
  EXPECT_EQ(frame->facts.valid, 2u);
  EXPECT_EQ(frame->facts.epoch, 3u);
  EXPECT_TRUE(frame->facts.last_of_epoch);
  EXPECT_EQ(frame->facts.position.ToString(), made.batch.position.ToString());
  EXPECT_EQ(frame->facts.digest, made.batch.digest);
  EXPECT_EQ(frame->facts.token_count, 5u);
  EXPECT_EQ(frame->facts.odd_images, 3u);
  EXPECT_EQ(frame->facts.value_bytes, 11u);
  EXPECT_EQ(frame->facts.keys, made.batch.keys);
  ASSERT_EQ(frame->facts.values.size(), 1u);
  EXPECT_EQ(frame->facts.values[0].name, "text");
  EXPECT_EQ(frame->facts.values[0].kind, BatchField::Kind::kText);
  EXPECT_EQ(frame->facts.values[0].rows, made.batch.values[0].rows);
  ASSERT_EQ(frame->facts.quarantined.size(), 1u);
  EXPECT_EQ(frame->facts.quarantined[0].reason, "truncated");
  ASSERT_EQ(frame->arrays.size(), 2u);
  EXPECT_EQ(AsText(frame->arrays[0]), "abcdefgh");
  EXPECT_EQ(AsText(frame->arrays[1]), "\1\1");
}

// The frame arrives like this if the rows of the images were received into their final place.
struct Placed {
  std::string slot = std::string(12, '.');
  std::shared_ptr<RowsPlace> rows;
  std::string bytes;  // but those of the rows
  uint32_t crc = 0;

  explicit Placed(const Made& made) {
    std::vector<MutableByteSpan> places;
    for (size_t row = 0; row < 2; ++row) {
      places.push_back(AsWritableBytes(slot).subspan(6 * row, 4));
      std::memcpy(places[row].data(), made.pixels.data() + 4 * row, 4);
    }
    rows = std::make_shared<RowsPlace>(nullptr, std::vector<RowsPlace::Array>{{8, places}, {2, {}}});
    const size_t content = made.pixels.size() + made.valid.size();
    bytes = made.bytes.substr(0, made.bytes.size() - content) + made.valid;
    crc = Crc32c(AsBytes(made.bytes).subspan(kFrameHeadBytes));
  }
};

TEST(FrameTest, RowsMayBeWhereTheyBelong) {
  const Made made;
  const Placed placed(made);
  const absl::StatusOr<WireBatch> frame = ParsePlacedFrame(AsBytes(placed.bytes), placed.rows, placed.crc);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->facts.keys, made.batch.keys);
  EXPECT_EQ(frame->facts.values[0].rows, made.batch.values[0].rows);
  EXPECT_EQ(frame->rows, placed.rows);
  ASSERT_EQ(frame->arrays.size(), 2u);
  EXPECT_TRUE(frame->arrays[0].empty());
  EXPECT_EQ(AsText(frame->arrays[1]), "\1\1");
  EXPECT_EQ(placed.slot, "abcd..efgh..");
}

TEST(FrameTest, DamageOfPlacedFramesIsNoticed) {
  const Made made;
  const Placed placed(made);
  EXPECT_TRUE(absl::IsDataLoss(ParsePlacedFrame(AsBytes(placed.bytes), placed.rows, placed.crc ^ 1).status()));
  for (size_t length = 0; length < placed.bytes.size(); ++length) {
    const std::string some = placed.bytes.substr(0, length);
    EXPECT_TRUE(absl::IsDataLoss(ParsePlacedFrame(AsBytes(some), placed.rows, placed.crc).status())) << length;
  }
  EXPECT_TRUE(absl::IsDataLoss(ParsePlacedFrame(AsBytes(placed.bytes + "x"), placed.rows, placed.crc).status()));
  // This place is for other arrays, and the checksum is right.
  const auto other = std::make_shared<RowsPlace>(nullptr, std::vector<RowsPlace::Array>{{8, {}}, {2, {}}});
  EXPECT_TRUE(absl::IsDataLoss(ParsePlacedFrame(AsBytes(placed.bytes), other, placed.crc).status()));
}

// The bytes came in memory of their own, which is freed as soon as they are not needed.
TEST(FrameTest, WhatCameGoesIfItWasMostlyValues) {
  for (const bool is_mostly_values : {true, false}) {
    Made made;
    if (is_mostly_values) made.batch.values[0].rows[0] = std::string(100, 'v');
    std::string bytes = EncodeFrame(17, made.batch, ContentsCrc(made.batch));
    for (const std::string& row : made.batch.values[0].rows) bytes += row;
    auto came = std::make_shared<std::string>(bytes + made.pixels + made.valid);
    const std::weak_ptr<void> watched = came;
    std::shared_ptr<void> memory = came;
    absl::StatusOr<WireBatch> frame = ParseFrame(AsBytes(*came));
    ASSERT_TRUE(frame.ok()) << frame.status();
    came.reset();
    EXPECT_EQ(ValueBytesOf(frame->facts.values), is_mostly_values ? 102u : 7u);
    KeepArrays(&*frame, &memory);
    EXPECT_EQ(watched.expired(), is_mostly_values);
    EXPECT_EQ(AsText(frame->arrays[0]), "abcdefgh");
    EXPECT_EQ(AsText(frame->arrays[1]), "\1\1");
    EXPECT_EQ(frame->facts.values[0].rows, made.batch.values[0].rows);
  }
}

TEST(FrameTest, EveryFlippedBitIsNoticed) {
  const Made made;
  for (size_t bit = 0; bit < 8 * made.bytes.size(); ++bit) {
    std::string damaged = made.bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    EXPECT_TRUE(absl::IsDataLoss(ParseFrame(AsBytes(damaged)).status())) << bit;
  }
}

TEST(FrameTest, EveryOtherLengthIsNoticed) {
  const Made made;
  for (size_t length = 0; length < made.bytes.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(ParseFrame(AsBytes(made.bytes.substr(0, length))).status())) << length;
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseFrame(AsBytes(made.bytes + "x")).status()));
}

}  // namespace
}  // namespace millrace
