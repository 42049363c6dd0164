#include "decode/resample_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "decode/resample_kernels.cc"
#include "hwy/foreach_target.h"  // compiles the rest of this file once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kRowShift = kWeightBits - kRowBits;
constexpr int kFinalShift = kWeightBits + kRowBits;
/// Of a number of the rows between the two passes. A filter with negative weights overshoots: as in Pillow, it is cut
/// off after each pass.
constexpr int kMostInRow = 255 << kRowBits;

/// `kTaps` 0: as many as the weights say. A number known to the compiler saves the inner loop, which is half of the
/// work.
template <int kTaps>
void ResizeRowRgbxTaps(const uint8_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  // One pixel is four lanes; the positions of neighbouring outputs have no regular distance.
  const hn::CappedTag<int32_t, 4> di32;
  const hn::Rebind<uint8_t, decltype(di32)> du8;
  const hn::Rebind<int16_t, decltype(di32)> di16;
  const auto half = hn::Set(di32, 1 << (kRowShift - 1));
  const auto zero = hn::Zero(di32);
  const auto most = hn::Set(di32, kMostInRow);
  const int taps = kTaps == 0 ? weights.taps : kTaps;
  const int outputs = weights.outputs;
  const ptrdiff_t stride = weights.stride;
  const int32_t* HWY_RESTRICT first = weights.first;
  const int32_t* HWY_RESTRICT weight = weights.weights;
  for (int i = 0; i < outputs; ++i, weight += stride, out += 4) {
    const uint8_t* HWY_RESTRICT pixel = row + static_cast<ptrdiff_t>(first[i]) * 4;
    for (size_t lane = 0; lane < 4; lane += hn::Lanes(di32)) {
      auto sum = half;
      HWY_UNROLL(8)
      for (int k = 0; k < taps; ++k) {
        const auto value = hn::PromoteTo(di32, hn::LoadU(du8, pixel + 4 * k + lane));
        sum = hn::Add(sum, hn::Mul(value, hn::Set(di32, weight[k])));
      }
      hn::StoreU(hn::DemoteTo(di16, hn::Min(hn::Max(hn::ShiftRight<kRowShift>(sum), zero), most)), di16, out + lane);
    }
  }
}

void ResizeRowRgbxImpl(const uint8_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  switch (weights.taps) {
    case 2:
      return ResizeRowRgbxTaps<2>(row, weights, out);
    case 3:
      return ResizeRowRgbxTaps<3>(row, weights, out);
    case 4:
      return ResizeRowRgbxTaps<4>(row, weights, out);
    case 5:
      return ResizeRowRgbxTaps<5>(row, weights, out);
    default:
      return ResizeRowRgbxTaps<0>(row, weights, out);
  }
}

void ResizeRowGreyImpl(const uint8_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  // Four neighbouring taps at a time; the weights are padded with zeros to a multiple of four.
  const hn::CappedTag<int32_t, 4> di32;
  const hn::Rebind<uint8_t, decltype(di32)> du8;
  const int lanes = static_cast<int>(hn::Lanes(di32));
  for (int i = 0; i < weights.outputs; ++i) {
    const uint8_t* HWY_RESTRICT pixel = row + weights.first[i];
    const int32_t* HWY_RESTRICT weight = weights.weights + static_cast<ptrdiff_t>(i) * weights.stride;
    auto sum = hn::Zero(di32);
    for (int k = 0; k < weights.taps; k += lanes) {
      const auto value = hn::PromoteTo(di32, hn::LoadU(du8, pixel + k));
      sum = hn::Add(sum, hn::Mul(value, hn::LoadU(di32, weight + k)));
    }
    const int32_t total = hn::GetLane(hn::SumOfLanes(di32, sum));
    out[i] = static_cast<int16_t>(std::clamp((total + (1 << (kRowShift - 1))) >> kRowShift, 0, kMostInRow));
  }
}

void BlendRowsImpl(const int16_t* const* HWY_RESTRICT rows, const int32_t* HWY_RESTRICT weights, int taps, size_t size,
                   uint8_t* HWY_RESTRICT out) {
  const hn::CappedTag<int32_t, 16> di32;
  const hn::Rebind<int16_t, decltype(di32)> di16;
  const hn::Rebind<uint8_t, decltype(di32)> du8;
  const size_t lanes = hn::Lanes(di32);
  const auto half = hn::Set(di32, 1 << (kFinalShift - 1));
  for (size_t x = 0; x < size; x += 2 * lanes) {
    auto sum0 = half;
    auto sum1 = half;
    for (int k = 0; k < taps; ++k) {
      const auto weight = hn::Set(di32, weights[k]);
      sum0 = hn::Add(sum0, hn::Mul(weight, hn::PromoteTo(di32, hn::LoadU(di16, rows[k] + x))));
      sum1 = hn::Add(sum1, hn::Mul(weight, hn::PromoteTo(di32, hn::LoadU(di16, rows[k] + x + lanes))));
    }
    hn::StoreU(hn::DemoteTo(du8, hn::ShiftRight<kFinalShift>(sum0)), du8, out + x);
    hn::StoreU(hn::DemoteTo(du8, hn::ShiftRight<kFinalShift>(sum1)), du8, out + x + lanes);
  }
}

void PackRgbImpl(const uint8_t* HWY_RESTRICT rgbx, size_t pixels, uint8_t* HWY_RESTRICT rgb) {
  const hn::CappedTag<uint8_t, 64> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= pixels; i += lanes) {
    hn::Vec<decltype(d)> red, green, blue, rest;
    hn::LoadInterleaved4(d, rgbx + 4 * i, red, green, blue, rest);
    hn::StoreInterleaved3(red, green, blue, d, rgb + 3 * i);
  }
  for (; i < pixels; ++i) {
    rgb[3 * i] = rgbx[4 * i];
    rgb[3 * i + 1] = rgbx[4 * i + 1];
    rgb[3 * i + 2] = rgbx[4 * i + 2];
  }
}

void SplitRgbImpl(const uint8_t* HWY_RESTRICT rgbx, size_t pixels, uint8_t* HWY_RESTRICT red,
                  uint8_t* HWY_RESTRICT green, uint8_t* HWY_RESTRICT blue) {
  const hn::CappedTag<uint8_t, 64> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= pixels; i += lanes) {
    hn::Vec<decltype(d)> r, g, b, rest;
    hn::LoadInterleaved4(d, rgbx + 4 * i, r, g, b, rest);
    hn::StoreU(r, d, red + i);
    hn::StoreU(g, d, green + i);
    hn::StoreU(b, d, blue + i);
  }
  for (; i < pixels; ++i) {
    red[i] = rgbx[4 * i];
    green[i] = rgbx[4 * i + 1];
    blue[i] = rgbx[4 * i + 2];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(ResizeRowRgbxImpl);
HWY_EXPORT(ResizeRowGreyImpl);
HWY_EXPORT(BlendRowsImpl);
HWY_EXPORT(PackRgbImpl);
HWY_EXPORT(SplitRgbImpl);

void ResizeRowRgbx(const uint8_t* row, const Weights& weights, int16_t* out) {
  HWY_DYNAMIC_DISPATCH(ResizeRowRgbxImpl)(row, weights, out);
}

void ResizeRowGrey(const uint8_t* row, const Weights& weights, int16_t* out) {
  HWY_DYNAMIC_DISPATCH(ResizeRowGreyImpl)(row, weights, out);
}

void BlendRows(const int16_t* const* rows, const int32_t* weights, int taps, size_t size, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(BlendRowsImpl)(rows, weights, taps, size, out);
}

void PackRgb(const uint8_t* rgbx, size_t pixels, uint8_t* rgb) {
  HWY_DYNAMIC_DISPATCH(PackRgbImpl)(rgbx, pixels, rgb);
}

void SplitRgb(const uint8_t* rgbx, size_t pixels, uint8_t* red, uint8_t* green, uint8_t* blue) {
  HWY_DYNAMIC_DISPATCH(SplitRgbImpl)(rgbx, pixels, red, green, blue);
}

}  // namespace millrace::kernels
#endif  // HWY_ONCE
