#include "decode/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace millrace {
namespace {

ImageSpec SpecOf(int height, int width) {
  ImageSpec spec;
  spec.height = height;
  spec.width = width;
  return spec;
}

void ExpectRect(const SourceCrop& crop, double x, double y, double width, double height) {
  EXPECT_DOUBLE_EQ(crop.x, x);
  EXPECT_DOUBLE_EQ(crop.y, y);
  EXPECT_DOUBLE_EQ(crop.width, width);
  EXPECT_DOUBLE_EQ(crop.height, height);
}

TEST(CenterCropTest, LandscapeKeepsTheHeightAndTheMiddle) {
  // 640 x 480 is resized to 298 x 224 (298.67 rounded down); 37 columns are cut off on the left.
  const SourceCrop crop = CenterCrop({640, 480}, SpecOf(224, 224));
  ExpectRect(crop, 37 * 640.0 / 298, 0, 224 * 640.0 / 298, 480);
  EXPECT_EQ(crop.left, 0);
  EXPECT_EQ(crop.right, 640);
  EXPECT_EQ(crop.bottom, 480);
  EXPECT_FALSE(crop.flip);
}

TEST(CropLikeTest, OfTheSameSizeIsTheSameCrop) {
  ImageSpec spec = SpecOf(20, 30);
  spec.augment = true;
  for (uint64_t key = 0; key < 50; ++key) {
    const Frame leader{{64, 48}, RandomCrop({64, 48}, spec, key)};
    const SourceCrop crop = *CropLike({64, 48}, leader);
    ExpectRect(crop, leader.crop.x, leader.crop.y, leader.crop.width, leader.crop.height);
    EXPECT_EQ(crop.flip, leader.crop.flip);
    EXPECT_EQ(crop.right, leader.crop.right);
  }
}

TEST(CropLikeTest, OfAnotherSizeShowsTheSamePart) {
  ImageSpec spec = SpecOf(20, 30);
  spec.augment = true;
  for (uint64_t key = 0; key < 50; ++key) {
    const Frame leader{{640, 480}, RandomCrop({640, 480}, spec, key)};
    const SourceCrop half = *CropLike({320, 240}, leader);
    ExpectRect(half, leader.crop.x / 2, leader.crop.y / 2, leader.crop.width / 2, leader.crop.height / 2);
    EXPECT_EQ(half.left, leader.crop.left / 2);
    EXPECT_EQ(half.bottom, (leader.crop.bottom + 1) / 2);
    EXPECT_TRUE(CropLike({213, 160}, leader).ok());  // a third, rounded
    for (const ImageSize other : {ImageSize{480, 640}, ImageSize{640, 400}, ImageSize{200, 200}}) {
      EXPECT_TRUE(absl::IsDataLoss(CropLike(other, leader).status())) << other.width;
    }
  }
}

TEST(NearestPixelsTest, TakesThePixelOfTheCentre) {
  std::vector<int> pixels;
  NearestPixels(0, 8, 0, 8, 4, false, &pixels);
  EXPECT_EQ(pixels, (std::vector<int>{1, 3, 5, 7}));
  NearestPixels(2, 3, 2, 5, 6, true, &pixels);
  EXPECT_EQ(pixels, (std::vector<int>{4, 4, 3, 3, 2, 2}));
}

TEST(CenterCropTest, PortraitKeepsTheWidth) {
  const SourceCrop crop = CenterCrop({480, 640}, SpecOf(224, 224));
  ExpectRect(crop, 0, 37 * 640.0 / 298, 480, 224 * 640.0 / 298);
}

TEST(CenterCropTest, SameSizeIsTheIdentity) {
  ExpectRect(CenterCrop({28, 28}, SpecOf(28, 28)), 0, 0, 28, 28);
}

TEST(CenterCropTest, OddRestsRoundHalfToEvenAsPythonDoes) {
  ExpectRect(CenterCrop({105, 100}, SpecOf(100, 100)), 2, 0, 100, 100);  // 2.5 -> 2
  ExpectRect(CenterCrop({107, 100}, SpecOf(100, 100)), 4, 0, 100, 100);  // 3.5 -> 4
  ExpectRect(CenterCrop({101, 100}, SpecOf(100, 100)), 0, 0, 100, 100);  // 0.5 -> 0
}

TEST(CenterCropTest, OutputsThatAreNotSquareAreCovered) {
  // If 320 wide and 100 high is wanted, 640 x 480 is resized to 320 x 240, and the middle 100 rows are taken.
  ExpectRect(CenterCrop({640, 480}, SpecOf(100, 320)), 0, 140, 640, 200);
  // If 100 wide and 240 high is wanted, it is resized to 320 x 240, and the middle 100 columns are taken.
  ExpectRect(CenterCrop({640, 480}, SpecOf(240, 100)), 220, 0, 200, 480);
}

TEST(CenterCropTest, ExtremeSizesStayInside) {
  for (const ImageSize size : {ImageSize{1, 1}, {65500, 1}, {1, 65500}, {3, 65500}, {65500, 4000}}) {
    for (const auto& [h, w] : std::vector<std::pair<int, int>>{{1, 1}, {1, 16384}, {16384, 1}, {224, 224}}) {
      const SourceCrop crop = CenterCrop(size, SpecOf(h, w));
      EXPECT_GE(crop.x, 0);
      EXPECT_GE(crop.y, 0);
      EXPECT_GT(crop.width, 0);
      EXPECT_GT(crop.height, 0);
      EXPECT_LE(crop.x + crop.width, size.width * (1 + 1e-12));
      EXPECT_LE(crop.y + crop.height, size.height * (1 + 1e-12));
    }
  }
}

TEST(RandomCropTest, DependsOnTheKeyAlone) {
  const ImageSpec spec = SpecOf(224, 224);
  const SourceCrop a = RandomCrop({640, 480}, spec, 1);
  const SourceCrop b = RandomCrop({640, 480}, spec, 1);
  ExpectRect(b, a.x, a.y, a.width, a.height);
  EXPECT_EQ(a.flip, b.flip);
  const SourceCrop c = RandomCrop({640, 480}, spec, 2);
  EXPECT_FALSE(a.x == c.x && a.y == c.y && a.width == c.width && a.height == c.height);
}

TEST(RandomCropTest, GoldenValues) {
  // Every recorded digest with --augment depends on these: they change only with a new version of the position format.
  const SourceCrop a = RandomCrop({640, 480}, SpecOf(224, 224), 0);
  const SourceCrop b = RandomCrop({640, 480}, SpecOf(224, 224), 12345);
  EXPECT_THAT((std::vector<double>{a.x, a.y, a.width, a.height, a.flip ? 1.0 : 0.0}),
              ::testing::ElementsAre(309, 151, 259, 227, 0));
  EXPECT_THAT((std::vector<double>{b.x, b.y, b.width, b.height, b.flip ? 1.0 : 0.0}),
              ::testing::ElementsAre(198, 16, 434, 327, 1));
}

TEST(RandomCropTest, FollowsTheDistributionOfRandomResizedCrop) {
  const ImageSpec spec = SpecOf(224, 224);
  constexpr int kDraws = 20'000;
  double area = 0;
  double log_ratio = 0;
  int flips = 0;
  int smallest = 1 << 30;
  for (int key = 0; key < kDraws; ++key) {
    const SourceCrop crop = RandomCrop({500, 500}, spec, key);
    ASSERT_GE(crop.left, 0);
    ASSERT_GE(crop.top, 0);
    ASSERT_LE(crop.right, 500);
    ASSERT_LE(crop.bottom, 500);
    ASSERT_EQ(crop.right - crop.left, crop.width);
    ASSERT_EQ(crop.bottom - crop.top, crop.height);
    const double ratio = crop.width / crop.height;
    ASSERT_GT(ratio, 0.75 * 0.98);
    ASSERT_LT(ratio, 4.0 / 3 * 1.02);
    area += crop.width * crop.height / 250'000;
    log_ratio += std::log(ratio);
    flips += crop.flip ? 1 : 0;
    smallest = std::min(smallest, static_cast<int>(crop.width * crop.height));
  }
  // Areas are uniform in [0.08, 1], but one of a > 3/4 fits only with a ratio within [a, 1/a], which has probability
  // ln(1/a) / ln(4/3). The mean of that density is 0.4778.
  EXPECT_NEAR(area / kDraws, 0.4778, 0.006);
  EXPECT_NEAR(log_ratio / kDraws, 0, 0.01);
  EXPECT_NEAR(flips, kDraws / 2, 300);
  EXPECT_NEAR(smallest, 0.08 * 250'000, 600);
}

TEST(RandomCropTest, FallsBackToACentralCropOfTheNearestRatio) {
  // 1000 x 10: no ratio of 3/4 to 4/3 with at least half of the area fits, so the crop is 13 x 10 in the middle.
  ImageSpec spec = SpecOf(224, 224);
  spec.crop_scale = {0.5, 1.0};
  for (uint64_t key = 0; key < 20; ++key) ExpectRect(RandomCrop({1000, 10}, spec, key), 493, 0, 13, 10);
  for (uint64_t key = 0; key < 20; ++key) ExpectRect(RandomCrop({10, 1000}, spec, key), 0, 493, 10, 13);
  ExpectRect(RandomCrop({1, 1}, spec, 3), 0, 0, 1, 1);
}

TEST(RandomCropTest, WholeImageWhenScaleAndRatioSaySo) {
  ImageSpec spec = SpecOf(100, 100);
  spec.crop_scale = {1, 1};
  spec.crop_ratio = {1, 1};
  spec.flip_probability = 1;
  const SourceCrop crop = RandomCrop({100, 100}, spec, 9);
  ExpectRect(crop, 0, 0, 100, 100);
  EXPECT_TRUE(crop.flip);
  spec.flip_probability = 0;
  EXPECT_FALSE(RandomCrop({100, 100}, spec, 9).flip);
}

TEST(RandomCropTest, ExtremeRatiosDoNotOverflow) {
  ImageSpec spec = SpecOf(8, 8);
  spec.crop_ratio = {1e-150, 1e150};
  for (uint64_t key = 0; key < 200; ++key) {
    const SourceCrop crop = RandomCrop({65500, 4000}, spec, key);
    EXPECT_GE(crop.left, 0);
    EXPECT_GT(crop.right, crop.left);
    EXPECT_LE(crop.right, 65500);
    EXPECT_GT(crop.bottom, crop.top);
    EXPECT_LE(crop.bottom, 4000);
  }
}

TEST(ChooseDenominatorTest, LeavesTwiceThePixelsOfTheOutput) {
  const auto crop = [](double width, double height) { return SourceCrop{.width = width, .height = height}; };
  EXPECT_EQ(ChooseDenominator(crop(895, 895), SpecOf(224, 224)), 1);
  EXPECT_EQ(ChooseDenominator(crop(896, 896), SpecOf(224, 224)), 2);
  EXPECT_EQ(ChooseDenominator(crop(4000, 896), SpecOf(224, 224)), 2);
  EXPECT_EQ(ChooseDenominator(crop(1791, 1792), SpecOf(224, 224)), 2);
  EXPECT_EQ(ChooseDenominator(crop(1792, 1792), SpecOf(224, 224)), 4);
  EXPECT_EQ(ChooseDenominator(crop(50000, 50000), SpecOf(224, 224)), 8);
}

}  // namespace
}  // namespace millrace
