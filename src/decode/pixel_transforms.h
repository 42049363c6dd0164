#pragma once

#include <cstdint>
#include <vector>

#include "decode/image.h"
#include "decode/pixels.h"

namespace millrace {

/// Applies those transforms of a list that change pixels, and mirrors that come after one of them, in their order. What
/// they draw is a function of `key` and their place in the list. Pictures that show the same follow by what is added to
/// `warps`. Pure; `scratch` holds what it likes.
void TransformPixels(const std::vector<ImageTransform>& transforms, uint64_t key, Pixels* image, Pixels* scratch,
                     std::vector<Warp>* warps);

/// The operations of RandAugment and TrivialAugmentWide, by torchvision's names.
enum class AugmentOp : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int kAugmentOps = 14;

/// Of the `bin`-th of `bins` magnitudes, without its sign.
double RandAugmentMagnitude(AugmentOp op, int bin, int bins, ImageSize size);
double TrivialAugmentMagnitude(AugmentOp op, int bin, int bins);
/// Whether the magnitude is as often negative.
bool IsSigned(AugmentOp op);

}  // namespace millrace
