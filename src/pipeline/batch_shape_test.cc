#include "pipeline/batch_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

// A batch of two rows of three tokens, or of two images of 4x4.
class CheckShapeTest : public ::testing::Test {
 protected:
  CheckShapeTest() {
    tokens_.size = images_.size = 2;
    tokens_.length = 3;
    tokens_.tokens = std::span(memory_).first(2 * 3 * 4);
    tokens_.token_mask = std::span(marks_).first(6);
    tokens_.mask = images_.mask = std::span(marks_).first(2);
    tokens_.samples = images_.samples = std::span(numbers_);
    images_.shape = 1;
    images_.images = std::span(memory_).first(2 * 4 * 4 * 3);
  }
  std::string Refusal(const Batch& batch) { return std::string(CheckShape(declared_, batch).message()); }

  std::array<std::byte, 128> memory_{};
  std::array<uint8_t, 8> marks_{};
  std::array<uint64_t, 2> numbers_{};
  const std::vector<BatchShape> declared_{
      {{"tokens", "int32", {2, 3}}, {"token_mask", "bool", {2, 3}}, {"mask", "bool", {2}}, {"sample", "int64", {2}}},
      {{"image", "uint8", {2, 4, 4, 3}}, {"mask", "bool", {2}}, {"sample", "int64", {2}}}};
  Batch tokens_;
  Batch images_;
};

TEST_F(CheckShapeTest, TakesWhatWasDeclared) {
  EXPECT_EQ(Refusal(tokens_), "");
  EXPECT_EQ(Refusal(images_), "");
}

TEST_F(CheckShapeTest, RefusesOtherLengthsAndSizes) {
  tokens_.tokens = std::span(memory_).first(2 * 4 * 4);
  EXPECT_THAT(Refusal(tokens_),
              HasSubstr("'tokens' of a batch has 32 bytes, and the loader has declared int32 of [2, 3]"));
  images_.images = std::span(memory_).first(4 * 4 * 3);
  EXPECT_THAT(Refusal(images_), HasSubstr("'image' of a batch has 48 bytes"));
  images_.mask = {};
  images_.images = std::span(memory_).first(2 * 4 * 4 * 3);
  EXPECT_THAT(Refusal(images_), HasSubstr("'mask' of a batch has 0 bytes"));
}

TEST_F(CheckShapeTest, RefusesArraysAndShapesThatWereNotDeclared) {
  images_.parts = std::span(numbers_);
  EXPECT_THAT(Refusal(images_), HasSubstr("no array 'part'"));
  tokens_.shape = 1;
  EXPECT_NE(Refusal(tokens_), "");
  tokens_.shape = 2;
  EXPECT_THAT(Refusal(tokens_), HasSubstr("2 rows of 3 tokens is of none of the 2 shapes"));
}

}  // namespace
}  // namespace millrace
