#include "decode/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>

#include "decode/erasing.h"
#include "decode/exact_math.h"
#include "decode/geometry.h"
#include "decode/pixel_transforms.h"
#include "decode/warp.h"

namespace millrace {
namespace {

using Kind = ImageTransform::Kind;
using ::testing::HasSubstr;

const ImageTransform kCrop{Kind::kRandomResizedCrop, 1, {24, 32, 0.08, 1, 0.75, 4.0 / 3}};
const ImageTransform kFlip{Kind::kHorizontalFlip, 0.5, {}};
const ImageTransform kUpsideDown{Kind::kVerticalFlip, 1, {}};
const ImageTransform kGrey{Kind::kGrayscale, 1, {}};

ImageSpec Spec(int height, int width, std::vector<ImageTransform> transforms) {
  ImageSpec spec;
  spec.height = height;
  spec.width = width;
  spec.transforms = std::move(transforms);
  return spec;
}

ImageTransform Resize(double side) {
  return {Kind::kResize, 1, {side}};
}
ImageTransform Centre(double height, double width) {
  return {Kind::kCenterCrop, 1, {height, width}};
}

void ExpectSame(const SourceCrop& one, const SourceCrop& other) {
  EXPECT_DOUBLE_EQ(one.x, other.x);
  EXPECT_DOUBLE_EQ(one.y, other.y);
  EXPECT_DOUBLE_EQ(one.width, other.width);
  EXPECT_DOUBLE_EQ(one.height, other.height);
  EXPECT_EQ(one.left, other.left);
  EXPECT_EQ(one.top, other.top);
  EXPECT_EQ(one.right, other.right);
  EXPECT_EQ(one.bottom, other.bottom);
  EXPECT_EQ(one.flip, other.flip);
}

TEST(TransformedCropTest, TheUsualPairIsWhatAugmentDoes) {
  ImageSpec augmented;
  augmented.height = 24;
  augmented.width = 32;
  for (uint64_t key = 0; key < 200; ++key) {
    const absl::StatusOr<SourceCrop> crop = TransformedCrop({200, 150}, Spec(24, 32, {kCrop, kFlip}), key);
    ASSERT_TRUE(crop.ok()) << crop.status();
    ExpectSame(*crop, RandomCrop({200, 150}, augmented, key));
  }
}

TEST(TransformedCropTest, ResizeAndCentreOfTheSameSizeIsWhatEvaluationDoes) {
  for (const ImageSize image : {ImageSize{640, 480}, {333, 517}, {224, 224}, {100, 90}}) {
    const ImageSpec spec = Spec(224, 224, {Resize(224), Centre(224, 224)});
    const absl::StatusOr<SourceCrop> crop = TransformedCrop(image, spec, 0);
    ASSERT_TRUE(crop.ok()) << crop.status();
    ExpectSame(*crop, CenterCrop(image, spec));
  }
}

TEST(TransformedCropTest, ALargerResizeShowsLess) {
  // 640 x 480 becomes 341 x 256; the columns 58 (round(58.5) = 58) to 282 and the rows 16 to 240 of that are taken.
  const SourceCrop crop = *TransformedCrop({640, 480}, Spec(224, 224, {Resize(256), Centre(224, 224)}), 0);
  EXPECT_DOUBLE_EQ(crop.x, 58 * 640.0 / 341);
  EXPECT_DOUBLE_EQ(crop.width, 224 * 640.0 / 341);
  EXPECT_DOUBLE_EQ(crop.y, 16 * 480.0 / 256);
  EXPECT_EQ(crop.left, 0);
  EXPECT_EQ(crop.right, 640);
}

TEST(TransformedCropTest, WhatIsCutFirstIsAllThatAResizeSees) {
  const SourceCrop crop = *TransformedCrop({100, 80}, Spec(20, 30, {Centre(40, 60), {Kind::kResize, 1, {20, 30}}}), 0);
  EXPECT_EQ(crop.left, 20);
  EXPECT_EQ(crop.right, 80);
  EXPECT_EQ(crop.top, 20);
  EXPECT_EQ(crop.bottom, 60);
  EXPECT_DOUBLE_EQ(crop.width, 60);
}

TEST(TransformedCropTest, AMirrorBeforeACutMirrorsWhatIsCut) {
  const ImageTransform always{Kind::kHorizontalFlip, 1, {}};
  const SourceCrop crop = *TransformedCrop({11, 9}, Spec(4, 4, {always, kUpsideDown, Centre(4, 4)}), 0);
  EXPECT_TRUE(crop.flip);
  EXPECT_TRUE(crop.flip_vertical);
  EXPECT_DOUBLE_EQ(crop.x, 11 - 4 - 4);  // round(3.5) is 4
  EXPECT_DOUBLE_EQ(crop.y, 9 - 2 - 4);   // round(2.5) is 2
}

TEST(TransformedCropTest, SaysWhyItCannot) {
  const absl::Status small = TransformedCrop({100, 80}, Spec(90, 90, {Centre(90, 90)}), 0).status();
  EXPECT_THAT(small.message(), HasSubstr("90 x 90 pixels out of 100 x 80"));
  const absl::Status other = TransformedCrop({100, 80}, Spec(64, 64, {Resize(64), kUpsideDown}), 0).status();
  EXPECT_THAT(other.message(), HasSubstr("make 80 x 64 pixels of an image of 100 x 80"));
}

TEST(CheckTransformsTest, RefusesAnOrderThatItCannotKeep) {
  EXPECT_TRUE(CheckTransforms({}).ok());
  EXPECT_TRUE(CheckTransforms({kFlip, kCrop, kGrey, kFlip}).ok());
  const ImageTransform erasing{Kind::kErasing, 0.5, {0.02, 0.33, 0.3, 3.3, 0, 1, 0, 0, 0}};
  EXPECT_TRUE(CheckTransforms({kCrop, erasing}).ok());
  const struct {
    std::vector<ImageTransform> transforms;
    std::string_view why;
  } kWrong[] = {
      {{kGrey, kCrop}, "RandomResizedCrop: it comes after RandomGrayscale"},
      {{kCrop, erasing, kFlip}, "RandomHorizontalFlip: it comes after RandomErasing"},
      {{Resize(30), kCrop}, "resize it once"},
      {{Resize(30)}, "leave the size of the output open"},
      {{kGrey}, "leave the size of the output open"},
      {{Centre(0, 4)}, "CenterCrop: height and width must be"},
      {{{Kind::kCenterCrop, 0.5, {4, 4}}}, "cannot be left to chance"},
      {{kCrop, {Kind::kHorizontalFlip, 1.5, {}}}, "probability 1.5"},
      {{kCrop, {Kind::kColorJitter, 1, {1, 1, 1, 1, 1, 1, 0, 0.6}}}, "hue must rise within"},
      {{kCrop, {Kind::kColorJitter, 1, {2, 1, 1, 1, 1, 1, 0, 0}}}, "factors must rise"},
      {{kCrop, {Kind::kGaussianBlur, 1, {4, 3, 1, 1}}}, "odd numbers"},
      {{kCrop, {Kind::kGaussianBlur, 1, {3, 3, 0, 1}}}, "sigma"},
      {{kCrop, {Kind::kRandAugment, 1, {2, 31, 31, 0, 0, 0, 0}}}, "magnitude must be"},
      {{kCrop, {Kind::kGrayscale, 1, {1}}}, "1 numbers, and it takes 0"},
      {{kCrop, {Kind::kGaussianBlur, 1, {3, 3, NAN, 1}}}, "not finite"},
      {{kCrop, {Kind::kErasing, 1, {0, 1, 1, 1, 0, 0, 0, 0, 0}}}, "scale must rise"},
  };
  for (const auto& wrong : kWrong) {
    EXPECT_THAT(CheckTransforms(wrong.transforms).message(), HasSubstr(std::string(wrong.why)));
  }
}

TEST(TransformTest, ChanceFollowsItsProbability) {
  for (const double probability : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    int taken = 0;
    for (uint64_t key = 0; key < 10'000; ++key) {
      if (TakesPlace({Kind::kVerticalFlip, probability, {}}, key, 1)) ++taken;
    }
    EXPECT_NEAR(taken / 1e4, probability, 0.02);  // four standard deviations
  }
}

TEST(TransformTest, NamesGoBothWays) {
  for (int kind = 0; kind <= static_cast<int>(Kind::kErasing); ++kind) {
    const auto name = ImageTransformName(static_cast<Kind>(kind));
    EXPECT_EQ(static_cast<int>(*ImageTransformKind(name)), kind) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ImageTransformKind("Solarise").status()));
}

// These are the tables of torchvision's RandAugment._augmentation_space(31, (height, width)) and of
// TrivialAugmentWide's.
TEST(AugmentTest, MagnitudesAreThoseOfTorchvision) {
  const ImageSize size{200, 100};
  const auto rand = [&](AugmentOp op, int bin) { return RandAugmentMagnitude(op, bin, 31, size); };
  EXPECT_NEAR(rand(AugmentOp::kShearX, 9), 0.09, 1e-12);
  EXPECT_NEAR(rand(AugmentOp::kTranslateX, 30), 150.0 / 331 * 200, 1e-9);
  EXPECT_NEAR(rand(AugmentOp::kTranslateY, 30), 150.0 / 331 * 100, 1e-9);
  EXPECT_NEAR(rand(AugmentOp::kRotate, 9), 9, 1e-12);
  EXPECT_NEAR(rand(AugmentOp::kSharpness, 9), 0.27, 1e-12);
  EXPECT_EQ(rand(AugmentOp::kPosterize, 0), 8);
  EXPECT_EQ(rand(AugmentOp::kPosterize, 9), 7);
  EXPECT_EQ(rand(AugmentOp::kPosterize, 30), 4);
  EXPECT_NEAR(rand(AugmentOp::kSolarize, 9), 255 - 9 * 8.5, 1e-9);
  EXPECT_EQ(rand(AugmentOp::kEqualize, 9), 0);
  const auto trivial = [&](AugmentOp op, int bin) { return TrivialAugmentMagnitude(op, bin, 31); };
  EXPECT_NEAR(trivial(AugmentOp::kShearY, 30), 0.99, 1e-12);
  EXPECT_NEAR(trivial(AugmentOp::kTranslateY, 15), 16, 1e-12);
  EXPECT_NEAR(trivial(AugmentOp::kRotate, 30), 135, 1e-12);
  EXPECT_NEAR(trivial(AugmentOp::kContrast, 30), 0.99, 1e-12);
  EXPECT_EQ(trivial(AugmentOp::kPosterize, 30), 2);
  EXPECT_EQ(trivial(AugmentOp::kSolarize, 30), 0);
  EXPECT_EQ(trivial(AugmentOp::kIdentity, 30), 0);
  EXPECT_FALSE(IsSigned(AugmentOp::kPosterize));
  EXPECT_TRUE(IsSigned(AugmentOp::kBrightness));
}

TEST(ErasingTest, PartsFollowTheirFormula) {
  const ImageTransform erasing{Kind::kErasing, 1, {0.02, 0.33, 0.3, 3.3, 0, 0, 0, 0, 0}};
  double area = 0;
  double log_ratio = 0;
  constexpr int kCount = 20'000;
  for (uint64_t key = 0; key < kCount; ++key) {
    const std::optional<ErasedPart> part = DrawErasing(erasing, key, 2, {224, 224});
    ASSERT_TRUE(part.has_value());  // with these numbers ten tries suffice
    ASSERT_GE(part->left, 0);
    ASSERT_GE(part->top, 0);
    ASSERT_LE(part->left + part->width, 224);
    ASSERT_LE(part->top + part->height, 224);
    area += static_cast<double>(part->width) * part->height / (224 * 224);
    log_ratio += std::log(static_cast<double>(part->height) / part->width);
  }
  EXPECT_NEAR(area / kCount, (0.02 + 0.33) / 2, 0.004);
  EXPECT_NEAR(log_ratio / kCount, 0, 0.025);
  EXPECT_FALSE(DrawErasing({Kind::kErasing, 0, erasing.numbers}, 0, 0, {224, 224}));
  EXPECT_FALSE(DrawErasing({Kind::kErasing, 1, {1, 1, 1, 1, 0, 0, 0, 0, 0}}, 0, 0, {224, 224}));  // never smaller
}

TEST(ExactMathTest, IsCloseToTheLibrary) {
  for (double x = 0; x < 100; x += 0.37) EXPECT_NEAR(ExpOfMinus(x), std::exp(-x), 1e-13);
  EXPECT_EQ(ExpOfMinus(1e9), 0);
  for (double degrees = -180; degrees <= 180; degrees += 1.7) {
    const SineAndCosine of = SineAndCosineOf(degrees);
    EXPECT_NEAR(of.sine, std::sin(degrees / 180 * std::numbers::pi), 1e-14);
    EXPECT_NEAR(of.cosine, std::cos(degrees / 180 * std::numbers::pi), 1e-14);
  }
}

Pixels Numbered(int width, int height, int channels) {
  Pixels image;
  image.Resize(width, height, channels);
  for (size_t i = 0; i < image.bytes.size(); ++i) image.bytes[i] = static_cast<uint8_t>(i * 37 + 1);
  return image;
}

TEST(WarpTest, MirrorsTwiceIsTheSame) {
  for (const bool bilinear : {false, true}) {
    Pixels image = Numbered(7, 5, 3);
    Pixels scratch;
    for (Warp warp : {MirrorX({7, 5}), MirrorY({7, 5}), MirrorX({7, 5}), MirrorY({7, 5})}) {
      warp.bilinear = bilinear;
      WarpPixels(warp, {}, &image, &scratch);
      EXPECT_NE(image.bytes, scratch.bytes);
    }
    EXPECT_EQ(image.bytes, Numbered(7, 5, 3).bytes);
  }
}

TEST(WarpTest, ShiftsFillWhatIsOutside) {
  Pixels image = Numbered(4, 1, 1);
  Pixels scratch;
  WarpPixels(Shift(2, 0), {9, 9, 9}, &image, &scratch);
  EXPECT_THAT(image.bytes, ::testing::ElementsAre(9, 9, 1, 38));
}

TEST(WarpTest, RectanglesGoWhereTheirPixelsGo) {
  const ImageSize size{100, 80};
  EXPECT_THAT(WarpRectangle(Shift(10, -5), {20, 30, 40, 50}, size), ::testing::ElementsAre(30, 25, 50, 45));
  EXPECT_THAT(WarpRectangle(MirrorX(size), {20, 30, 40, 50}, size), ::testing::ElementsAre(60, 30, 80, 50));
  EXPECT_THAT(WarpRectangle(Shift(90, 0), {20, 30, 40, 50}, size), ::testing::ElementsAre(100, 30, 100, 50));
  const std::array<double, 4> turned = WarpRectangle(Turn(90, {100, 100}), {10, 20, 30, 40}, {100, 100});
  // Counter-clockwise about (50, 50): what is at the left comes to the bottom.
  EXPECT_NEAR(turned[0], 20, 1e-9);
  EXPECT_NEAR(turned[1], 70, 1e-9);
  EXPECT_NEAR(turned[2], 40, 1e-9);
  EXPECT_NEAR(turned[3], 90, 1e-9);
}

TEST(WarpTest, APictureOfHalfTheSizeFollows) {
  const ImageSize size{100, 80};
  const std::array<double, 4> whole = WarpRectangle(Turn(20, size), {20, 30, 40, 50}, size);
  const std::array<double, 4> half = WarpRectangle(Scaled(Turn(20, size), size, {50, 40}), {10, 15, 20, 25}, {50, 40});
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(half[i], whole[i] / 2, 1e-9);
}

}  // namespace
}  // namespace millrace
