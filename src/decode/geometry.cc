#include "decode/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/rng.h"
#include "decode/exact_math.h"

namespace millrace {
namespace {

constexpr uint64_t kCropDomain = 0x63726f70;  // "crop"
constexpr uint64_t kFlipDomain = 0x666c6970;  // "flip"
constexpr int kCropTries = 10;

/// Returns round(n / 2.0) as Python does it: half to even. n >= 0.
int RoundHalf(int n) {
  const int floor = n / 2;
  return n % 2 == 0 ? floor : floor + floor % 2;
}

using Range = std::array<double, 2>;

SourceCrop WholePixels(int left, int top, int width, int height) {
  return {.x = static_cast<double>(left),
          .y = static_cast<double>(top),
          .width = static_cast<double>(width),
          .height = static_cast<double>(height),
          .left = left,
          .top = top,
          .right = left + width,
          .bottom = top + height};
}

/// Returns the largest central crop whose ratio is allowed: where torchvision ends when no try fits.
SourceCrop FallbackCrop(ImageSize image, const Range& ratios) {
  const double ratio = static_cast<double>(image.width) / image.height;
  int width = image.width;
  int height = image.height;
  if (ratio < ratios[0]) {
    height = static_cast<int>(std::clamp<int64_t>(RoundToEven(width / ratios[0]), 1, image.height));
  } else if (ratio > ratios[1]) {
    width = static_cast<int>(std::clamp<int64_t>(RoundToEven(height * ratios[1]), 1, image.width));
  }
  return WholePixels((image.width - width) / 2, (image.height - height) / 2, width, height);
}

SourceCrop DrawCrop(ImageSize image, const Range& scale, const Range& ratios, Rng& rng) {
  const double area = static_cast<double>(image.width) * image.height;
  for (int i = 0; i < kCropTries; ++i) {
    const double target = area * (scale[0] + (scale[1] - scale[0]) * rng.Unit());
    const double ratio = LogUniform(ratios[0], ratios[1], rng.Unit());
    const double width = std::sqrt(target * ratio);
    const double height = std::sqrt(target / ratio);
    // Compared as doubles first: an extreme ratio may exceed every integer.
    if (width >= image.width + 1.0 || height >= image.height + 1.0) continue;
    const int64_t w = RoundToEven(width);
    const int64_t h = RoundToEven(height);
    if (w < 1 || h < 1 || w > image.width || h > image.height) continue;
    const auto top = static_cast<int>(rng.Below(image.height - h + 1));
    const auto left = static_cast<int>(rng.Below(image.width - w + 1));
    return WholePixels(left, top, static_cast<int>(w), static_cast<int>(h));
  }
  return FallbackCrop(image, ratios);
}

}  // namespace

SourceCrop CenterCrop(ImageSize image, const ImageSpec& spec) {
  // These give the size after the resize that just covers the output.
  int64_t resized_width = spec.width;
  int64_t resized_height = spec.height;
  if (int64_t{image.width} * spec.height <= int64_t{image.height} * spec.width) {
    resized_height = int64_t{image.height} * spec.width / image.width;
  } else {
    resized_width = int64_t{image.width} * spec.height / image.height;
  }
  const double scale_x = static_cast<double>(image.width) / static_cast<double>(resized_width);
  const double scale_y = static_cast<double>(image.height) / static_cast<double>(resized_height);
  const int left = RoundHalf(static_cast<int>(resized_width - spec.width));
  const int top = RoundHalf(static_cast<int>(resized_height - spec.height));
  return {.x = left * scale_x,
          .y = top * scale_y,
          .width = spec.width * scale_x,
          .height = spec.height * scale_y,
          .left = 0,
          .top = 0,
          .right = image.width,
          .bottom = image.height};
}

SourceCrop RandomCrop(ImageSize image, const ImageSpec& spec, uint64_t key) {
  Rng rng(HashKey(kCropDomain, {key}));
  SourceCrop crop = DrawCrop(image, spec.crop_scale, spec.crop_ratio, rng);
  // The flip has a draw of its own, so that the number of tries does not decide it.
  crop.flip = Rng(HashKey(kFlipDomain, {key})).Unit() < spec.flip_probability;
  return crop;
}

namespace {

/// Holds an image on its way through the transforms that choose its part.
class View {
 public:
  explicit View(ImageSize image)
      : width_(image.width), height_(image.height), crop_(WholePixels(0, 0, image.width, image.height)) {}

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }
  ImageSize size() const { return {static_cast<int>(width_), static_cast<int>(height_)}; }

  void Flip() { crop_.flip = !crop_.flip; }
  void FlipVertical() { crop_.flip_vertical = !crop_.flip_vertical; }

  void Resize(int64_t width, int64_t height) {
    resized_ = true;
    width_ = width;
    height_ = height;
  }

  /// Cuts the image as it is seen: in a mirrored one, left is right.
  void Cut(int left, int top, int width, int height) {
    if (crop_.flip) left = static_cast<int>(width_) - left - width;
    if (crop_.flip_vertical) top = static_cast<int>(height_) - top - height;
    const double scale_x = crop_.width / static_cast<double>(width_);
    const double scale_y = crop_.height / static_cast<double>(height_);
    crop_.x += left * scale_x;
    crop_.y += top * scale_y;
    crop_.width = width * scale_x;
    crop_.height = height * scale_y;
    if (!resized_) {
      // Cut out of the stored pixels: what is resized later does not see beyond.
      crop_.left += left;
      crop_.top += top;
      crop_.right = crop_.left + width;
      crop_.bottom = crop_.top + height;
    }
    width_ = width;
    height_ = height;
  }

  const SourceCrop& crop() const { return crop_; }

 private:
  int64_t width_;
  int64_t height_;
  bool resized_ = false;
  SourceCrop crop_;
};

void ResizeView(const std::vector<double>& size, View* view) {
  if (size.size() == 2) return view->Resize(static_cast<int64_t>(size[1]), static_cast<int64_t>(size[0]));
  const auto side = static_cast<int64_t>(size[0]);
  if (view->width() <= view->height()) return view->Resize(side, view->height() * side / view->width());
  view->Resize(view->width() * side / view->height(), side);
}

absl::Status CutCentre(int height, int width, View* view) {
  if (width > view->width() || height > view->height()) {
    return absl::InvalidArgumentError(fmt::format(
        "CenterCrop is to cut {} x {} pixels out of {} x {}, and Millrace does not pad; resize the image to "
        "at least that size before (Resize)",
        width, height, view->width(), view->height()));
  }
  view->Cut(RoundHalf(static_cast<int>(view->width()) - width), RoundHalf(static_cast<int>(view->height()) - height),
            width, height);
  return absl::OkStatus();
}

// Returns whether a mirror is applied. The first one of each name draws as RandomCrop does.
bool DrawsFlip(const ImageTransform& transform, uint64_t key, size_t place, bool first) {
  if (transform.kind == ImageTransform::Kind::kHorizontalFlip && first) {
    return Rng(HashKey(kFlipDomain, {key})).Unit() < transform.probability;
  }
  return TakesPlace(transform, key, place);
}

}  // namespace

absl::StatusOr<SourceCrop> TransformedCrop(ImageSize image, const ImageSpec& spec, uint64_t key) {
  View view(image);
  bool first_flip = true;
  const size_t count = CountPartTransforms(spec.transforms);
  for (size_t i = 0; i < count; ++i) {
    const ImageTransform& transform = spec.transforms[i];
    const std::vector<double>& numbers = transform.numbers;
    switch (transform.kind) {
      case ImageTransform::Kind::kResize:
        ResizeView(numbers, &view);
        break;
      case ImageTransform::Kind::kCenterCrop:
        RETURN_IF_ERROR(CutCentre(static_cast<int>(numbers[0]), static_cast<int>(numbers[1]), &view));
        break;
      case ImageTransform::Kind::kRandomResizedCrop: {
        Rng rng(HashKey(kCropDomain, {key}));
        const SourceCrop cut = DrawCrop(view.size(), {numbers[2], numbers[3]}, {numbers[4], numbers[5]}, rng);
        view.Cut(cut.left, cut.top, cut.right - cut.left, cut.bottom - cut.top);
        view.Resize(static_cast<int64_t>(numbers[1]), static_cast<int64_t>(numbers[0]));
        break;
      }
      case ImageTransform::Kind::kHorizontalFlip:
        if (DrawsFlip(transform, key, i, first_flip)) view.Flip();
        first_flip = false;
        break;
      default:
        if (TakesPlace(transform, key, i)) view.FlipVertical();
    }
  }
  if (view.width() == spec.width && view.height() == spec.height) return view.crop();
  return absl::InvalidArgumentError(
      fmt::format("the transforms make {} x {} pixels of an image of {} x {}, and {} x {} "
                  "are wanted of all; end them with a crop, or with Resize((height, width))",
                  view.width(), view.height(), image.width, image.height, spec.width, spec.height));
}

absl::StatusOr<SourceCrop> CropLike(ImageSize image, const Frame& leader) {
  const ImageSize of = leader.image;
  const int64_t skew = int64_t{image.width} * of.height - int64_t{image.height} * of.width;
  // A copy of another size has sides that are rounded to whole pixels.
  if (std::abs(skew) > int64_t{of.width} + of.height) {
    return absl::DataLossError(
        fmt::format("{} x {} pixels, and the image whose crop it follows has {} x {}: they do not show the same scene",
                    image.width, image.height, of.width, of.height));
  }
  SourceCrop crop = leader.crop;
  if (image.width == of.width && image.height == of.height) return crop;
  const double x = static_cast<double>(image.width) / of.width;
  const double y = static_cast<double>(image.height) / of.height;
  crop.x *= x;
  crop.width *= x;
  crop.y *= y;
  crop.height *= y;
  const auto down = [](double position, int most) {
    return std::clamp(static_cast<int>(std::floor(position)), 0, most - 1);
  };
  crop.left = down(crop.left * x, image.width);
  crop.top = down(crop.top * y, image.height);
  crop.right = std::clamp(static_cast<int>(std::ceil(crop.right * x)), crop.left + 1, image.width);
  crop.bottom = std::clamp(static_cast<int>(std::ceil(crop.bottom * y)), crop.top + 1, image.height);
  return crop;
}

void NearestPixels(double from, double size, int low, int high, int outputs, bool reverse, std::vector<int>* pixels) {
  pixels->resize(static_cast<size_t>(outputs));
  const double scale = size / outputs;
  for (int i = 0; i < outputs; ++i) {
    const auto pixel = static_cast<int>(std::floor(from + (i + 0.5) * scale));
    (*pixels)[static_cast<size_t>(reverse ? outputs - 1 - i : i)] = std::clamp(pixel, low, high - 1);
  }
}

int ChooseDenominator(const SourceCrop& crop, const ImageSpec& spec) {
  for (const int denominator : {8, 4, 2}) {
    if (crop.width >= 2.0 * denominator * spec.width && crop.height >= 2.0 * denominator * spec.height) {
      return denominator;
    }
  }
  return 1;
}

}  // namespace millrace
