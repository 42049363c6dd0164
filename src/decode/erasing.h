#pragma once

#include <cstdint>
#include <optional>

#include "decode/image.h"

namespace millrace {

/// Describes a rectangle of the output that RandomErasing overwrites.
struct ErasedPart {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
};

/// Draws torchvision's RandomErasing: ten tries, then nothing. It draws nothing either if the transform does not take
/// place. The result is a function of the arguments.
std::optional<ErasedPart> DrawErasing(const ImageTransform& transform, uint64_t image_key, size_t place,
                                      ImageSize size);

}  // namespace millrace
