#include "service/frame.h"

#include <gtest/gtest.h>

#include <cstring>

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
    batch.value_bytes = 11;
    batch.keys = {"one", ""};
    batch.values = {{"text", BatchField::Kind::kText, {"hello", std::string("\0x", 2)}}};
    batch.quarantined = {{"s3://b/k", "truncated", "other", 3}};
    batch.arrays = {{"image", AsWritableBytes(pixels)}, {"valid", AsWritableBytes(valid)}};
    bytes = EncodeFrame(17, batch) + pixels + valid;
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
