#pragma once

#include <cstdint>
#include <vector>

#include "decode/image.h"

/// Computes which part of an image becomes the output. Pure arithmetic on sizes; only operations that IEEE 754 defines
/// exactly, so that every machine draws the same rectangles.

namespace millrace {

/// Computes the crop without augmentation: torchvision's Resize (so that the image just covers spec.height x
/// spec.width, the longer side rounded down) and CenterCrop. The rectangle is the source of that crop, and the filter
/// sees its surroundings.
SourceCrop CenterCrop(ImageSize image, const ImageSpec& spec);

/// Computes the crop with augmentation: torchvision's RandomResizedCrop (ten tries, then a central crop of the nearest
/// allowed ratio) and horizontal flip. It is a function of (image, spec, key). The rectangle has whole pixels and the
/// filter does not see beyond it.
SourceCrop RandomCrop(ImageSize image, const ImageSpec& spec, uint64_t key);

/// Computes the crop with spec.transforms: those that come before any change of pixels, one after the other (for Resize
/// and crops the arithmetic is torchvision's). The first RandomResizedCrop and RandomHorizontalFlip draw what
/// RandomCrop does. Returns InvalidArgument if the image is smaller than what a CenterCrop is to cut out of it, or if
/// the result is not of the size that the spec has.
absl::StatusOr<SourceCrop> TransformedCrop(ImageSize image, const ImageSpec& spec, uint64_t key);

/// Returns the rectangle of an image that shows what `leader` shows of another one of the same scene, perhaps of
/// another size. Returns DataLoss if the shapes differ by more than rounding: then they do not show the same.
absl::StatusOr<SourceCrop> CropLike(ImageSize image, const Frame& leader);

/// Finds the source pixel of each of `outputs` pixels that cover `size` from `from` on: the pixel in which its centre
/// is, within [low, high). `reverse` mirrors the output.
void NearestPixels(double from, double size, int low, int high, int outputs, bool reverse, std::vector<int>* pixels);

/// Returns the part of 1/`denominator` by which a JPEG may be shrunk while it is decoded. It is the largest of 8, 4, 2,
/// 1 that leaves at least twice as many pixels as the output has in both directions. The antialiased filter then still
/// decides what is seen. (Images that the codec had shrunk to the very size of the output cost 0.75 % accuracy in a
/// trial.)
int ChooseDenominator(const SourceCrop& crop, const ImageSpec& spec);

}  // namespace millrace
