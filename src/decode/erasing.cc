#include "decode/erasing.h"

#include <cmath>

#include "base/rng.h"
#include "decode/exact_math.h"

namespace millrace {

std::optional<ErasedPart> DrawErasing(const ImageTransform& transform, uint64_t image_key, size_t place,
                                      ImageSize size) {
  constexpr int kTries = 10;
  if (!TakesPlace(transform, image_key, place)) return std::nullopt;
  const std::vector<double>& n = transform.numbers;
  Rng rng(TransformKey(image_key, place));
  const double area = static_cast<double>(size.width) * size.height;
  for (int i = 0; i < kTries; ++i) {
    const double target = area * (n[0] + (n[1] - n[0]) * rng.Unit());
    const double ratio = LogUniform(n[2], n[3], rng.Unit());
    const double height = std::sqrt(target * ratio);
    const double width = std::sqrt(target / ratio);
    // Compared as doubles first: an extreme ratio may exceed every integer.
    if (height >= size.height || width >= size.width) continue;
    const auto h = static_cast<int>(RoundToEven(height));
    const auto w = static_cast<int>(RoundToEven(width));
    if (h >= size.height || w >= size.width) continue;
    const auto top = static_cast<int>(rng.Below(static_cast<uint64_t>(size.height - h + 1)));
    const auto left = static_cast<int>(rng.Below(static_cast<uint64_t>(size.width - w + 1)));
    return ErasedPart{.left = left, .top = top, .width = w, .height = h};
  }
  return std::nullopt;
}

}  // namespace millrace
