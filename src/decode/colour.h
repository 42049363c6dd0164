#pragma once

#include "decode/pixels.h"

/// Changes of colours, in place, with Pillow's arithmetic (ImageEnhance, ImageOps and its conversion to HSV): every
/// result is Pillow's, to the last bit. A factor of 1 changes nothing, but for the hue. Pure.

namespace millrace::colour {

void Brightness(Pixels* image, double factor);
void Contrast(Pixels* image, double factor);
void Saturation(Pixels* image, double factor);
void Sharpness(Pixels* image, double factor);
/// Turns the hue by a part of the whole circle, -0.5 to 0.5. Grey images do not have a hue.
void Hue(Pixels* image, double turn);
/// Every pixel becomes its luma.
void Grey(Pixels* image);
/// Keeps so many bits of each number, 1 to 8.
void Posterize(Pixels* image, int bits);
/// Inverts the values that are not below the threshold.
void Solarize(Pixels* image, double threshold);
void AutoContrast(Pixels* image);
void Equalize(Pixels* image);

}  // namespace millrace::colour
