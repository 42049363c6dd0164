#pragma once

#include <cstdint>
#include <vector>

#include "decode/erasing.h"
#include "decode/image.h"
#include "decode/pixel_scale.h"

namespace millrace {

/// Puts rows of u8 pixels where a spec wants them, in its layout and type. Reusable.
class ImageOutput {
 public:
  /// The spec outlives the use of the output. `pixels` (if any) gets the u8 HWC pixels, too.
  void Start(const ImageSpec& spec, MutableByteSpan out, MutableByteSpan pixels);

  /// Puts row `y`: RGBX, or grey when the spec has one channel.
  void Put(int y, const uint8_t* row);
  /// Puts row `y` without gaps, as it is in an image of the layout HWC.
  void PutPacked(int y, const uint8_t* row);

  /// Overwrites a part of the image, whose rows were put, as the transform says; random values are a function of `key`.
  void Erase(const ErasedPart& part, const ImageTransform& erasing, uint64_t key);

 private:
  void PutFloats(int y, const uint8_t* packed) const;
  /// `plane` has the pixels of one channel; those of the output are side by side, too.
  void PutPlane(int y, int channel, const uint8_t* plane) const;
  size_t PlaceOf(int y, int x, int channel) const;

  const ImageSpec* spec_ = nullptr;
  uint8_t* out_ = nullptr;
  uint8_t* pixels_ = nullptr;
  std::vector<uint8_t> packed_;
  PixelScale floats_;
};

}  // namespace millrace
