#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

/// Transforms of images have the names and the meaning of torchvision's on PIL images. A list of them first says which
/// part of the image becomes the output (decode/geometry.h). It then says what happens to its pixels
/// (decode/pixel_transforms.h), and last what is erased (decode/erasing.h).

namespace millrace {

/// This is one entry of a list of transforms, as it was asked for.
struct ImageTransform {
  /// Each kind says what its `numbers` are.
  enum class Kind : uint8_t {
    // These choose the part of the image.
    kResize,             // {side}: the shorter side becomes that long; or {height, width}
    kCenterCrop,         // {height, width}
    kRandomResizedCrop,  // {height, width, scale from, scale to, ratio from, ratio to}
    // Mirrors: of the part of the image, or of its pixels if such a transform comes before.
    kHorizontalFlip,  // {}
    kVerticalFlip,    // {}
    // Pixels.
    kColorJitter,     // {brightness from, to, contrast from, to, saturation from, to, hue from, to}
    kGrayscale,       // {}
    kGaussianBlur,    // {kernel width, kernel height, sigma from, sigma to}
    kRandAugment,     // {operations, magnitude, bins, bilinear 0 or 1, fill red, green, blue}
    kTrivialAugment,  // {bins, bilinear 0 or 1, fill red, green, blue}
    // This one comes last.
    kErasing,  // {scale from, to, ratio from, to, random 0 or 1, after normalisation 0 or 1, red, green, blue}
  };
  Kind kind = Kind::kResize;
  double probability = 1;
  std::vector<double> numbers;

  bool chooses_part() const { return kind <= Kind::kRandomResizedCrop; }
  bool mirrors() const { return kind == Kind::kHorizontalFlip || kind == Kind::kVerticalFlip; }
  bool changes_pixels() const { return kind >= Kind::kColorJitter && kind != Kind::kErasing; }
};

/// Finds a kind by the name of torchvision. Returns InvalidArgument if there is none of that name.
absl::StatusOr<ImageTransform::Kind> ImageTransformKind(std::string_view name);
std::string_view ImageTransformName(ImageTransform::Kind kind);

/// Returns InvalidArgument, naming the transform, for numbers that make no sense and for an order that is not that
/// above.
absl::Status CheckTransforms(const std::vector<ImageTransform>& transforms);

/// Returns how many of the list, from its beginning, say which part of the image is shown and how it is mirrored: all
/// before the first one that changes pixels.
size_t CountPartTransforms(const std::vector<ImageTransform>& transforms);

/// Returns the key of the random numbers of the transform at that place of the list, for an image with that key.
uint64_t TransformKey(uint64_t image_key, size_t place);
/// Returns whether the transform takes place, by its probability.
bool TakesPlace(const ImageTransform& transform, uint64_t image_key, size_t place);

}  // namespace millrace
