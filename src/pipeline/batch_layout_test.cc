#include "pipeline/batch_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(BatchLayout, DividesASlotAndPadsItsLastRows) {
  BatchLayout layout(3);
  layout.Add("image", "uint8", {2, 2});
  layout.Add("label", "int64", {}, -1);
  EXPECT_EQ(layout.shape(), (BatchShape{{"image", "uint8", {3, 2, 2}}, {"label", "int64", {3}}}));
  std::vector<std::byte> slot(layout.bytes(), std::byte{7});
  EXPECT_EQ(layout.Row(slot.data(), "image", 1).size(), 4u);
  EXPECT_TRUE(layout.Row(slot.data(), "tokens", 1).empty());
  StoreLe(layout.Row(slot.data(), "label", 0).data(), int64_t{5});
  Batch batch;
  batch.arrays = layout.Deliver(slot.data(), 1);
  EXPECT_EQ(batch.Array<int64_t>("label")[0], 5);
  EXPECT_EQ(batch.Array<int64_t>("label")[2], -1);
  EXPECT_EQ(batch.Array<uint8_t>("image")[3], 7);
  EXPECT_EQ(batch.Array<uint8_t>("image")[4], 0);
  EXPECT_EQ(batch.Bytes("image").data(), layout.Row(slot.data(), "image", 0).data());
}

TEST(BatchLayout, PadsWithNumbersOfEachType) {
  BatchLayout layout(2);
  layout.Add("label", "int64", {}, -100);
  layout.Add("mask", "uint8", {3}, 255);
  layout.Add("target", "float32", {2}, std::bit_cast<int32_t>(std::numeric_limits<float>::quiet_NaN()));
  layout.Add("weight", "float32", {}, std::bit_cast<int32_t>(-0.5F));
  std::vector<std::byte> slot(layout.bytes(), std::byte{7});
  layout.PadRow(slot.data(), 0);
  Batch batch;
  batch.arrays = layout.Deliver(slot.data(), 2);
  EXPECT_EQ(batch.Array<int64_t>("label")[0], -100);
  EXPECT_EQ(batch.Array<int64_t>("label")[1], 0x0707070707070707);
  const std::span<const uint8_t> mask = batch.Array<uint8_t>("mask");
  EXPECT_EQ(std::vector<uint8_t>(mask.begin(), mask.end()), (std::vector<uint8_t>{255, 255, 255, 7, 7, 7}));
  EXPECT_TRUE(std::isnan(batch.Array<float>("target")[0]) && std::isnan(batch.Array<float>("target")[1]));
  EXPECT_FALSE(std::isnan(batch.Array<float>("target")[2]));
  EXPECT_EQ(batch.Array<float>("weight")[0], -0.5F);
}

TEST(BatchLayout, ShortensABatchToItsFirstRows) {
  BatchLayout layout(3);
  layout.Add("image", "uint8", {2, 2});
  layout.Add("label", "int64");
  std::vector<std::byte> slot(layout.bytes());
  Batch batch;
  batch.size = 3;
  batch.arrays = layout.Deliver(slot.data(), 3);
  batch.keys = {"a", "b", "c"};
  batch.values.push_back({"text", BatchField::Kind::kText, {"x", "y", "z"}});
  const std::byte* const images = batch.Bytes("image").data();
  Shorten(&batch, 3);
  EXPECT_EQ(batch.size, 3u);
  Shorten(&batch, 2);
  EXPECT_EQ(batch.size, 2u);
  EXPECT_EQ(batch.Bytes("image").size(), 8u);
  EXPECT_EQ(batch.Bytes("image").data(), images);
  EXPECT_EQ(batch.Array<int64_t>("label").size(), 2u);
  EXPECT_EQ(batch.keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(batch.values.front().rows, (std::vector<std::string>{"x", "y"}));
  const std::vector<BatchShape> declared{layout.shape()};
  EXPECT_TRUE(CheckShape(declared, batch).ok());
  batch.size = 3;  // more rows than its arrays have
  EXPECT_FALSE(CheckShape(declared, batch).ok());
}

TEST(BatchLayout, PadsPlacesOfARow) {
  BatchLayout layout(2, 4);
  layout.Add("tokens", "int32", {4}, 9);
  std::vector<std::byte> slot(layout.bytes(), std::byte{0});
  layout.Pad(slot.data(), "tokens", 5, 7);
  layout.Pad(slot.data(), "segment_ids", 0, 8);  // there is none
  Batch batch;
  batch.arrays = layout.Deliver(slot.data(), 2);
  const std::span<const int32_t> tokens = batch.Array<int32_t>("tokens");
  EXPECT_EQ(std::vector<int32_t>(tokens.begin(), tokens.end()), (std::vector<int32_t>{0, 0, 0, 0, 0, 9, 9, 0}));
}

// Provides a batch of two rows of three tokens, or of two images of 4x4.
class CheckShapeTest : public ::testing::Test {
 protected:
  CheckShapeTest() {
    tokens_.size = images_.size = 2;
    tokens_.length = 3;
    Set(&tokens_, "tokens", 2 * 3 * 4);
    Set(&tokens_, "token_mask", 6);
    images_.shape = 1;
    Set(&images_, "image", 2 * 4 * 4 * 3);
    for (Batch* const batch : {&tokens_, &images_}) {
      Set(batch, "valid", 2);
      Set(batch, "sample", 16);
    }
  }
  void Set(Batch* batch, std::string_view name, size_t bytes) {
    std::erase_if(batch->arrays, [name](const BatchArray& array) { return array.name == name; });
    batch->arrays.push_back({std::string(name), std::span(memory_).first(bytes)});
  }
  std::string Refusal(const Batch& batch) { return std::string(CheckShape(declared_, batch).message()); }

  std::array<std::byte, 128> memory_{};
  const std::vector<BatchShape> declared_{
      {{"tokens", "int32", {2, 3}}, {"token_mask", "bool", {2, 3}}, {"valid", "bool", {2}}, {"sample", "int64", {2}}},
      {{"image", "uint8", {2, 4, 4, 3}}, {"valid", "bool", {2}}, {"sample", "int64", {2}}}};
  Batch tokens_;
  Batch images_;
};

TEST_F(CheckShapeTest, TakesWhatWasDeclared) {
  EXPECT_EQ(Refusal(tokens_), "");
  EXPECT_EQ(Refusal(images_), "");
}

TEST_F(CheckShapeTest, RefusesOtherLengthsAndSizes) {
  Set(&tokens_, "tokens", 2 * 4 * 4);
  EXPECT_THAT(Refusal(tokens_),
              HasSubstr("'tokens' of a batch has 32 bytes, and the loader has declared int32 of [2, 3]"));
  Set(&images_, "image", 4 * 4 * 3);
  EXPECT_THAT(Refusal(images_), HasSubstr("'image' of a batch has 48 bytes"));
  Set(&images_, "valid", 0);
  Set(&images_, "image", 2 * 4 * 4 * 3);
  EXPECT_THAT(Refusal(images_), HasSubstr("'valid' of a batch has 0 bytes"));
}

TEST_F(CheckShapeTest, RefusesArraysAndShapesThatWereNotDeclared) {
  Set(&images_, "part", 16);
  EXPECT_THAT(Refusal(images_), HasSubstr("no array 'part'"));
  tokens_.shape = 1;
  EXPECT_NE(Refusal(tokens_), "");
  tokens_.shape = 2;
  EXPECT_THAT(Refusal(tokens_), HasSubstr("2 rows of 3 tokens is of none of the 2 shapes"));
}

}  // namespace
}  // namespace millrace
