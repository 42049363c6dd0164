#pragma once

#include <cstddef>
#include <cstdint>

/// These are the inner loops of resizing and packing, in SIMD for the best instruction set of the machine (Google
/// Highway, chosen at run time). Every instruction set gives the same result: sums are of integers, and floating-point
/// numbers are multiplied and added in two steps that IEEE 754 defines. Pointers need no alignment.

namespace millrace::kernels {

/// Weights are fixed-point numbers of this many fraction bits; those of one output sum to exactly 1 << kWeightBits.
inline constexpr int kWeightBits = 14;
/// Rows between the two passes keep this many fraction bits: 255 << 7 still fits into 16 bits.
inline constexpr int kRowBits = 7;
/// A kernel may read this much beyond the end of a row of pixels, and may write this much beyond the end of its output.
inline constexpr size_t kSlackBytes = 128;

/// Holds the weights of one axis. Output i is the sum over k < taps of weights[i * stride + k] * pixel[first[i] + k].
struct Weights {
  const int32_t* first = nullptr;
  const int16_t* weights = nullptr;
  int outputs = 0;
  int taps = 0;
  int stride = 0;  // >= taps, a multiple of kStrideGroup; weights beyond taps are zero
};
inline constexpr int kTapGroup = 4;
inline constexpr int kStrideGroup = 8;

/// One row of RGBX pixels (4 bytes each) becomes `outputs` pixels of 4 fixed-point numbers.
void ResizeRowRgbx(const uint8_t* row, const Weights& weights, int16_t* out);
/// Does the same for one byte a pixel.
void ResizeRowGrey(const uint8_t* row, const Weights& weights, int16_t* out);
/// Writes the weighted sum of `taps` rows of `size` numbers each, as bytes; `taps` is even. Writes up to kSlackBytes
/// more; rows are as long as that, too.
void BlendRows(const int16_t* const* rows, const int16_t* weights, int taps, size_t size, uint8_t* out);
/// Writes the same sum of rows of bytes, with kRowBits fraction bits. No weight is negative.
void BlendByteRows(const uint8_t* const* rows, const int16_t* weights, int taps, size_t size, int16_t* out);
/// A row of such numbers, one a pixel, becomes `outputs` of them. No weight is negative. Reads up to kSlackBytes beyond
/// the end of the row, and writes as much beyond that of the output.
void ResizeRowNumbers(const int16_t* row, const Weights& weights, int16_t* out);
/// `pixels` of JPEG's YCbCr, with kRowBits fraction bits, become RGBX. Reads and writes up to kSlackBytes more.
void RgbxFromYcc(const int16_t* luma, const int16_t* blue, const int16_t* red, size_t pixels, uint8_t* rgbx);
/// Drops every fourth byte.
void PackRgb(const uint8_t* rgbx, size_t pixels, uint8_t* rgb);
/// Computes values[i] * factor + summand in double precision, rounded to `count` numbers of f32.
void ScaleBytes(const uint8_t* values, size_t count, double factor, double summand, uint8_t* out);
/// Takes the three colours apart.
void SplitRgb(const uint8_t* rgbx, size_t pixels, uint8_t* red, uint8_t* green, uint8_t* blue);

}  // namespace millrace::kernels
