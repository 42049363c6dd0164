#pragma once

#include <cstdint>

#include "decode/image.h"

/// Computes which part of an image becomes the output. Pure arithmetic on sizes; only operations that IEEE 754 defines
/// exactly, so that every machine draws the same rectangles.

namespace millrace {

/// A rectangle of the source, in pixels of the full-size image; (0, 0) is the top left corner of the first pixel.
struct SourceCrop {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  // The pixels that may contribute: an antialiased filter reaches beyond the rectangle, but never beyond these.
  int left = 0;
  int top = 0;
  int right = 0;   // one past the last
  int bottom = 0;  // one past the last
  bool flip = false;
};

/// Without augmentation: torchvision's Resize (so that the image just covers spec.height x spec.width, the longer side
/// rounded down) and CenterCrop. The rectangle is the source of that crop, and the filter sees its
/// surroundings.
SourceCrop CenterCrop(ImageSize image, const ImageSpec& spec);

/// With augmentation: torchvision's RandomResizedCrop (ten tries, then a central crop of the nearest allowed ratio) and
/// horizontal flip. A function of (image, spec, key). The rectangle has whole pixels and the filter does not see beyond
/// it.
SourceCrop RandomCrop(ImageSize image, const ImageSpec& spec, uint64_t key);

/// The part of 1/`denominator` by which a JPEG may be shrunk while it is decoded: the largest of 8, 4, 2, 1 that leaves
/// at least as many pixels as the output needs in both directions.
int ChooseDenominator(const SourceCrop& crop, const ImageSpec& spec);

}  // namespace millrace
