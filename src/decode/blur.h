#pragma once

#include "decode/pixels.h"

namespace millrace {

/// Applies torchvision's gaussian_blur: a kernel of odd sides, the same sigma in both directions, the picture mirrored
/// at its borders (without its outermost pixels). A kernel that reaches farther than the picture is as large as the
/// picture allows.
void GaussianBlur(Pixels* image, int kernel_width, int kernel_height, double sigma);

}  // namespace millrace
