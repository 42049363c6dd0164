#pragma once

// jpeglib.h relies on what cstdio declares.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <algorithm>

namespace millrace {

/// Returns true if libjpeg makes up for coefficients that a progressive file lacks, by looking at the blocks around: it
/// then shows more than the coefficients. Call this after jpeg_start_decompress or jpeg_read_coefficients.
inline bool LacksCoefficients(const jpeg_decompress_struct& jpeg) {
  if (!jpeg.progressive_mode || jpeg.coef_bits == nullptr) return false;
  constexpr int kLooked = 10;  // coefficients
  for (int i = 0; i < jpeg.num_components; ++i) {
    const int* const missing = jpeg.coef_bits[i];
    if (std::any_of(missing + 1, missing + kLooked, [](int bits) { return bits != 0; })) return true;
  }
  return false;
}

}  // namespace millrace
