#pragma once

#include <cstdint>
#include <vector>

#include "decode/image.h"
#include "decode/pixels.h"

namespace millrace {

/// Applies those transforms of a list that change pixels, and mirrors that come after one of them, in their order.
/// Their random draws are a function of `key` and their place in the list. Pictures of the same scene follow by the
/// entries added to `warps`. Pure; the contents of `scratch` are unspecified.
void TransformPixels(const std::vector<ImageTransform>& transforms, uint64_t key, Pixels* image, Pixels* scratch,
                     std::vector<Warp>* warps);

/// These are the operations of RandAugment and TrivialAugmentWide, by torchvision's names.
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

/// Returns the `bin`-th of `bins` magnitudes, without its sign.
double RandAugmentMagnitude(AugmentOp op, int bin, int bins, ImageSize size);
double TrivialAugmentMagnitude(AugmentOp op, int bin, int bins);
/// Returns whether the magnitude is negative as often as positive.
bool IsSigned(AugmentOp op);

}  // namespace millrace
