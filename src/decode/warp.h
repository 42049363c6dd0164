#pragma once

#include <array>

#include "decode/image.h"
#include "decode/pixels.h"

/// Shears, shifts, turns and mirrors of small images, as Pillow's `transform(AFFINE)` makes them. Pure.

namespace millrace {

using Fill = std::array<uint8_t, 3>;

/// Works in place; `scratch` gets the old pixels.
void WarpPixels(const Warp& warp, const Fill& fill, Pixels* image, Pixels* scratch);

Warp ShearX(double by);  // a pixel's row times that, to the right of the source
Warp ShearY(double by);
Warp Shift(double x, double y);
/// Turns counter-clockwise, about the centre, as Pillow's `rotate`.
Warp Turn(double degrees, ImageSize size);
Warp MirrorX(ImageSize size);
Warp MirrorY(ImageSize size);

/// Returns the same warp for a picture of another size.
Warp Scaled(const Warp& warp, ImageSize from, ImageSize to);

/// Returns what the warp makes of a rectangle {left, top, right, bottom} of a picture of that size: the smallest one,
/// within the picture, that holds all of it.
std::array<double, 4> WarpRectangle(const Warp& warp, const std::array<double, 4>& rectangle, ImageSize size);

}  // namespace millrace
