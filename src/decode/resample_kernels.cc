#include "decode/resample_kernels.h"

#include <algorithm>
#include <cstring>

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
/// Numbers of the rows between the two passes are at most this. A filter with negative weights overshoots: as in
/// Pillow, the excess is cut off after each pass.
constexpr int kMostInRow = 255 << kRowBits;

// JPEG's conversion of YCbCr uses 15 fraction bits. The whole part of a factor above one is added separately.
constexpr int16_t kRedOfRed = 13173;     // 1.402 - 1
constexpr int16_t kGreenOfBlue = 11277;  // 0.344136
constexpr int16_t kGreenOfRed = 23401;   // 0.714136
constexpr int16_t kBlueOfBlue = 25297;   // 1.772 - 1
constexpr int16_t kNoChroma = 128 << kRowBits;

#if HWY_TARGET == HWY_SCALAR

void ResizeRowRgbxImpl(const uint8_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  for (int i = 0; i < weights.outputs; ++i) {
    const uint8_t* HWY_RESTRICT pixel = row + static_cast<ptrdiff_t>(weights.first[i]) * 4;
    const int16_t* HWY_RESTRICT weight = weights.weights + static_cast<ptrdiff_t>(i) * weights.stride;
    for (int lane = 0; lane < 4; ++lane) {
      int32_t sum = 1 << (kRowShift - 1);
      for (int k = 0; k < weights.taps; ++k) sum += weight[k] * pixel[4 * k + lane];
      *out++ = static_cast<int16_t>(std::clamp(sum >> kRowShift, 0, kMostInRow));
    }
  }
}

void BlendRowsImpl(const int16_t* const* HWY_RESTRICT rows, const int16_t* HWY_RESTRICT weights, int taps, size_t size,
                   uint8_t* HWY_RESTRICT out) {
  for (size_t x = 0; x < size; ++x) {
    int32_t sum = 1 << (kFinalShift - 1);
    for (int k = 0; k < taps; ++k) sum += weights[k] * rows[k][x];
    out[x] = static_cast<uint8_t>(std::clamp(sum >> kFinalShift, 0, 255));
  }
}

void BlendByteRowsImpl(const uint8_t* const* HWY_RESTRICT rows, const int16_t* HWY_RESTRICT weights, int taps,
                       size_t size, int16_t* HWY_RESTRICT out) {
  for (size_t x = 0; x < size; ++x) {
    int32_t sum = 1 << (kRowShift - 1);
    for (int k = 0; k < taps; ++k) sum += weights[k] * rows[k][x];
    out[x] = static_cast<int16_t>(sum >> kRowShift);
  }
}

void ResizeRowNumbersImpl(const int16_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  for (int i = 0; i < weights.outputs; ++i) {
    const int16_t* HWY_RESTRICT number = row + weights.first[i];
    const int16_t* HWY_RESTRICT weight = weights.weights + static_cast<ptrdiff_t>(i) * weights.stride;
    int32_t sum = 1 << (kWeightBits - 1);
    for (int k = 0; k < weights.taps; ++k) sum += weight[k] * number[k];
    out[i] = static_cast<int16_t>(sum >> kWeightBits);
  }
}

#else

// Interleaving and packing cancel out within each block of 16 bytes; longer vectors are made of such blocks on x86.
#if HWY_ARCH_X86
using BlendTag = hn::CappedTag<int16_t, 32>;
#else
using BlendTag = hn::CappedTag<int16_t, 8>;
#endif

/// Saturates. Numbers that InterleaveLower and InterleaveUpper have separated are in order again.
template <class D16, class V32>
HWY_INLINE hn::Vec<D16> PackWords(D16 di16, V32 low, V32 high) {
#if HWY_ARCH_X86
  return hn::ReorderDemote2To(di16, low, high);
#else
  const hn::Half<D16> half;
  return hn::Combine(di16, hn::DemoteTo(half, high), hn::DemoteTo(half, low));
#endif
}

/// Rounds 32-bit sums that are whole. NEON has them in two parts until RearrangeToOddPlusEven; the initial value of one
/// of these would count twice for some and not at all for others.
template <int kBits, class V>
HWY_INLINE V RoundedShift(V sums) {
  return hn::ShiftRight<kBits>(hn::Add(sums, hn::Set(hn::DFromV<V>(), 1 << (kBits - 1))));
}

/// Four taps of an RGBX pixel: the bytes of each colour of neighbouring taps side by side, so that one instruction
/// multiplies and adds two taps.
alignas(16) constexpr uint8_t kPairTaps[16] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};

/// Returns two weights as one lane.
HWY_INLINE int32_t PairAt(const int16_t* HWY_RESTRICT weights) {
  int32_t pair;
  std::memcpy(&pair, weights, sizeof(pair));
  return pair;
}

/// Computes one pixel with 4 lanes. If `kPairs` is 0, there are as many pairs of taps as the weights say. A number
/// known to the compiler saves the inner loop.
template <int kPairs>
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 4>> SumPixel(const uint8_t* HWY_RESTRICT pixel,
                                                       const int16_t* HWY_RESTRICT weight, int pairs) {
  const hn::CappedTag<int32_t, 4> di32;
  const hn::CappedTag<int16_t, 8> di16;
  const hn::CappedTag<uint8_t, 16> du8;
  const auto order = hn::Load(du8, kPairTaps);
  const auto zero = hn::Zero(du8);
  auto even = hn::Zero(di32);
  auto odd = hn::Zero(di32);
  const int count = kPairs == 0 ? pairs : kPairs;
  HWY_UNROLL(3)
  for (int group = 0; group < count / 2; ++group, pixel += 16, weight += kTapGroup) {
    const auto taps = hn::TableLookupBytes(hn::LoadU(du8, pixel), order);
    const auto low = hn::BitCast(di16, hn::InterleaveLower(du8, taps, zero));
    const auto high = hn::BitCast(di16, hn::InterleaveUpper(du8, taps, zero));
    even = hn::ReorderWidenMulAccumulate(di32, low, hn::BitCast(di16, hn::Set(di32, PairAt(weight))), even, odd);
    even = hn::ReorderWidenMulAccumulate(di32, high, hn::BitCast(di16, hn::Set(di32, PairAt(weight + 2))), even, odd);
  }
  if (count % 2 != 0) {
    const auto taps = hn::TableLookupBytes(hn::LoadU(du8, pixel), order);
    const auto low = hn::BitCast(di16, hn::InterleaveLower(du8, taps, zero));
    even = hn::ReorderWidenMulAccumulate(di32, low, hn::BitCast(di16, hn::Set(di32, PairAt(weight))), even, odd);
  }
  return RoundedShift<kRowShift>(hn::RearrangeToOddPlusEven(even, odd));
}

template <int kPairs>
void ResizeRowRgbxPairs(const uint8_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  const hn::CappedTag<int16_t, 8> di16;
  const auto zero = hn::Zero(di16);
  const auto most = hn::Set(di16, kMostInRow);
  const int pairs = (weights.taps + 1) / 2;
  const ptrdiff_t stride = weights.stride;
  const int32_t* HWY_RESTRICT first = weights.first;
  const int16_t* HWY_RESTRICT weight = weights.weights;
  int i = 0;
  for (; i + 2 <= weights.outputs; i += 2, weight += 2 * stride, out += 8) {
    const auto left = SumPixel<kPairs>(row + static_cast<ptrdiff_t>(first[i]) * 4, weight, pairs);
    const auto right = SumPixel<kPairs>(row + static_cast<ptrdiff_t>(first[i + 1]) * 4, weight + stride, pairs);
    // Packing saturates, which is no more than is cut off in any case.
    hn::StoreU(hn::Min(hn::Max(PackWords(di16, left, right), zero), most), di16, out);
  }
  if (i < weights.outputs) {
    const hn::Half<decltype(di16)> half;
    const auto last = hn::DemoteTo(half, SumPixel<kPairs>(row + static_cast<ptrdiff_t>(first[i]) * 4, weight, pairs));
    hn::StoreU(hn::Min(hn::Max(last, hn::Zero(half)), hn::Set(half, kMostInRow)), half, out);
  }
}

void ResizeRowRgbxImpl(const uint8_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  switch ((weights.taps + 1) / 2) {
    case 1:
      return ResizeRowRgbxPairs<1>(row, weights, out);
    case 2:
      return ResizeRowRgbxPairs<2>(row, weights, out);
    case 3:
      return ResizeRowRgbxPairs<3>(row, weights, out);
    case 4:
      return ResizeRowRgbxPairs<4>(row, weights, out);
    default:
      return ResizeRowRgbxPairs<0>(row, weights, out);
  }
}

HWY_INLINE hn::Vec<BlendTag> LoadWords(const int16_t* HWY_RESTRICT numbers) {
  return hn::LoadU(BlendTag(), numbers);
}

HWY_INLINE hn::Vec<BlendTag> LoadWords(const uint8_t* HWY_RESTRICT numbers) {
  return hn::PromoteTo(BlendTag(), hn::LoadU(hn::Rebind<uint8_t, BlendTag>(), numbers));
}

/// Returns the weighted sums of as many numbers of the rows as a vector of words has, shifted by `kShift` and rounded.
template <int kShift, typename Number>
HWY_INLINE hn::Vec<BlendTag> BlendVector(const Number* const* HWY_RESTRICT rows, const int16_t* HWY_RESTRICT weights,
                                         int taps, size_t x) {
  const BlendTag di16;
  const hn::RepartitionToWide<BlendTag> di32;
  auto low = hn::Zero(di32);
  auto high = hn::Zero(di32);
  auto low_odd = hn::Zero(di32);
  auto high_odd = hn::Zero(di32);
  for (int k = 0; k < taps; k += 2) {
    const auto weight = hn::BitCast(di16, hn::Set(di32, PairAt(weights + k)));
    const auto upper = LoadWords(rows[k] + x);
    const auto lower = LoadWords(rows[k + 1] + x);
    low = hn::ReorderWidenMulAccumulate(di32, hn::InterleaveLower(di16, upper, lower), weight, low, low_odd);
    high = hn::ReorderWidenMulAccumulate(di32, hn::InterleaveUpper(di16, upper, lower), weight, high, high_odd);
  }
  return PackWords(di16, RoundedShift<kShift>(hn::RearrangeToOddPlusEven(low, low_odd)),
                   RoundedShift<kShift>(hn::RearrangeToOddPlusEven(high, high_odd)));
}

void BlendRowsImpl(const int16_t* const* HWY_RESTRICT rows, const int16_t* HWY_RESTRICT weights, int taps, size_t size,
                   uint8_t* HWY_RESTRICT out) {
  const BlendTag di16;
  const hn::Rebind<uint8_t, BlendTag> du8;
  const size_t lanes = hn::Lanes(di16);
  for (size_t x = 0; x < size; x += 2 * lanes) {
    const auto first = BlendVector<kFinalShift>(rows, weights, taps, x);
    const auto second = BlendVector<kFinalShift>(rows, weights, taps, x + lanes);
    hn::StoreU(hn::DemoteTo(du8, first), du8, out + x);
    hn::StoreU(hn::DemoteTo(du8, second), du8, out + x + lanes);
  }
}

void BlendByteRowsImpl(const uint8_t* const* HWY_RESTRICT rows, const int16_t* HWY_RESTRICT weights, int taps,
                       size_t size, int16_t* HWY_RESTRICT out) {
  const BlendTag di16;
  const size_t lanes = hn::Lanes(di16);
  for (size_t x = 0; x < size; x += lanes) {
    hn::StoreU(BlendVector<kRowShift>(rows, weights, taps, x), di16, out + x);
  }
}

/// The lanes add up to the weighted sum of a pixel. If `kGroups` is 0, there are as many groups of taps as `taps` says;
/// a number known to the compiler saves the loop.
template <int kGroups>
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 4>> SumNumbers(const int16_t* HWY_RESTRICT number,
                                                         const int16_t* HWY_RESTRICT weight, int taps) {
  const hn::CappedTag<int16_t, kStrideGroup> di16;
  const hn::CappedTag<int32_t, 4> di32;
  auto even = hn::Zero(di32);
  auto odd = hn::Zero(di32);
  const int end = kGroups == 0 ? taps : kGroups * kStrideGroup;
  HWY_UNROLL(2)
  for (int k = 0; k < end; k += kStrideGroup) {
    even = hn::ReorderWidenMulAccumulate(di32, hn::LoadU(di16, number + k), hn::LoadU(di16, weight + k), even, odd);
  }
  return hn::Add(even, odd);
}

template <int kGroups>
void ResizeRowNumbersGroups(const int16_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  const hn::CappedTag<int32_t, 4> di32;
  const hn::Rebind<int16_t, decltype(di32)> di16;
  const auto half = hn::Set(di32, 1 << (kWeightBits - 1));
  const int taps = weights.taps;
  const ptrdiff_t stride = weights.stride;
  const int32_t* HWY_RESTRICT first = weights.first;
  const int16_t* HWY_RESTRICT weight = weights.weights;
  int i = 0;
  for (; i + 4 <= weights.outputs; i += 4, weight += 4 * stride) {
    const auto a = SumNumbers<kGroups>(row + first[i], weight, taps);
    const auto b = SumNumbers<kGroups>(row + first[i + 1], weight + stride, taps);
    const auto c = SumNumbers<kGroups>(row + first[i + 2], weight + 2 * stride, taps);
    const auto d = SumNumbers<kGroups>(row + first[i + 3], weight + 3 * stride, taps);
    const auto ab = hn::Add(hn::InterleaveLower(di32, a, b), hn::InterleaveUpper(di32, a, b));
    const auto cd = hn::Add(hn::InterleaveLower(di32, c, d), hn::InterleaveUpper(di32, c, d));
    const auto sums = hn::Add(hn::ConcatLowerLower(di32, cd, ab), hn::ConcatUpperUpper(di32, cd, ab));
    hn::StoreU(hn::DemoteTo(di16, hn::ShiftRight<kWeightBits>(hn::Add(sums, half))), di16, out + i);
  }
  for (; i < weights.outputs; ++i, weight += stride) {
    const int32_t sum = hn::GetLane(hn::SumOfLanes(di32, SumNumbers<kGroups>(row + first[i], weight, taps)));
    out[i] = static_cast<int16_t>((sum + (1 << (kWeightBits - 1))) >> kWeightBits);
  }
}

void ResizeRowNumbersImpl(const int16_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  if (weights.taps <= kStrideGroup) return ResizeRowNumbersGroups<1>(row, weights, out);
  if (weights.taps <= 2 * kStrideGroup) return ResizeRowNumbersGroups<2>(row, weights, out);
  ResizeRowNumbersGroups<0>(row, weights, out);
}

#endif  // HWY_TARGET == HWY_SCALAR

using YccTag = hn::CappedTag<int16_t, 16>;

HWY_INLINE hn::Vec<YccTag> TimesFraction(hn::Vec<YccTag> number, int16_t factor) {
  return hn::MulFixedPoint15(number, hn::Set(YccTag(), factor));
}

HWY_INLINE hn::Vec<hn::Rebind<uint8_t, YccTag>> ByteOf(hn::Vec<YccTag> number) {
  const auto rounded = hn::SaturatedAdd(number, hn::Set(YccTag(), 1 << (kRowBits - 1)));
  return hn::DemoteTo(hn::Rebind<uint8_t, YccTag>(), hn::ShiftRight<kRowBits>(rounded));
}

void RgbxFromYccImpl(const int16_t* HWY_RESTRICT luma, const int16_t* HWY_RESTRICT blue,
                     const int16_t* HWY_RESTRICT red, size_t pixels, uint8_t* HWY_RESTRICT rgbx) {
  const YccTag di16;
  const hn::Rebind<uint8_t, YccTag> du8;
  const size_t lanes = hn::Lanes(di16);
  // Sums that saturate are above 255 in any case.
  for (size_t i = 0; i < pixels; i += lanes) {
    const auto y = hn::LoadU(di16, luma + i);
    const auto cb = hn::Sub(hn::LoadU(di16, blue + i), hn::Set(di16, kNoChroma));
    const auto cr = hn::Sub(hn::LoadU(di16, red + i), hn::Set(di16, kNoChroma));
    const auto r = hn::SaturatedAdd(y, hn::Add(cr, TimesFraction(cr, kRedOfRed)));
    const auto g = hn::SaturatedSub(y, hn::Add(TimesFraction(cb, kGreenOfBlue), TimesFraction(cr, kGreenOfRed)));
    const auto b = hn::SaturatedAdd(y, hn::Add(cb, TimesFraction(cb, kBlueOfBlue)));
    hn::StoreInterleaved4(ByteOf(r), ByteOf(g), ByteOf(b), hn::Zero(du8), du8, rgbx + 4 * i);
  }
}

void ResizeRowGreyImpl(const uint8_t* HWY_RESTRICT row, const Weights& weights, int16_t* HWY_RESTRICT out) {
  // Neighbouring taps at a time; the weights are padded with zeros to groups.
  const hn::CappedTag<int32_t, kTapGroup> di32;
  const hn::Rebind<uint8_t, decltype(di32)> du8;
  const hn::Rebind<int16_t, decltype(di32)> di16;
  const int lanes = static_cast<int>(hn::Lanes(di32));
  for (int i = 0; i < weights.outputs; ++i) {
    const uint8_t* HWY_RESTRICT pixel = row + weights.first[i];
    const int16_t* HWY_RESTRICT weight = weights.weights + static_cast<ptrdiff_t>(i) * weights.stride;
    auto sum = hn::Zero(di32);
    for (int k = 0; k < weights.taps; k += lanes) {
      const auto value = hn::PromoteTo(di32, hn::LoadU(du8, pixel + k));
      sum = hn::Add(sum, hn::Mul(value, hn::PromoteTo(di32, hn::LoadU(di16, weight + k))));
    }
    const int32_t total = hn::GetLane(hn::SumOfLanes(di32, sum));
    out[i] = static_cast<int16_t>(std::clamp((total + (1 << (kRowShift - 1))) >> kRowShift, 0, kMostInRow));
  }
}

void ScaleBytesImpl(const uint8_t* HWY_RESTRICT values, size_t count, double factor, double summand,
                    uint8_t* HWY_RESTRICT out) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_HAVE_FLOAT64
  const hn::CappedTag<double, 8> df64;
  const hn::Rebind<float, decltype(df64)> df32;
  const hn::Rebind<int32_t, decltype(df64)> di32;
  const hn::Rebind<uint8_t, decltype(df64)> du8;
  const hn::Repartition<uint8_t, decltype(df32)> bytes;
  const size_t lanes = hn::Lanes(df64);
  const auto times = hn::Set(df64, factor);
  const auto plus = hn::Set(df64, summand);
  for (; i + lanes <= count; i += lanes) {
    const auto wide = hn::PromoteTo(df64, hn::PromoteTo(di32, hn::LoadU(du8, values + i)));
    const auto scaled = hn::DemoteTo(df32, hn::Add(hn::Mul(wide, times), plus));
    hn::StoreU(hn::BitCast(bytes, scaled), bytes, out + sizeof(float) * i);
  }
#endif
  for (; i < count; ++i) {
    const auto scaled = static_cast<float>(values[i] * factor + summand);
    std::memcpy(out + sizeof(float) * i, &scaled, sizeof(scaled));
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
HWY_EXPORT(BlendByteRowsImpl);
HWY_EXPORT(ResizeRowNumbersImpl);
HWY_EXPORT(RgbxFromYccImpl);
HWY_EXPORT(ScaleBytesImpl);
HWY_EXPORT(PackRgbImpl);
HWY_EXPORT(SplitRgbImpl);

void ResizeRowRgbx(const uint8_t* row, const Weights& weights, int16_t* out) {
  HWY_DYNAMIC_DISPATCH(ResizeRowRgbxImpl)(row, weights, out);
}

void ResizeRowGrey(const uint8_t* row, const Weights& weights, int16_t* out) {
  HWY_DYNAMIC_DISPATCH(ResizeRowGreyImpl)(row, weights, out);
}

void BlendRows(const int16_t* const* rows, const int16_t* weights, int taps, size_t size, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(BlendRowsImpl)(rows, weights, taps, size, out);
}

void BlendByteRows(const uint8_t* const* rows, const int16_t* weights, int taps, size_t size, int16_t* out) {
  HWY_DYNAMIC_DISPATCH(BlendByteRowsImpl)(rows, weights, taps, size, out);
}

void ResizeRowNumbers(const int16_t* row, const Weights& weights, int16_t* out) {
  HWY_DYNAMIC_DISPATCH(ResizeRowNumbersImpl)(row, weights, out);
}

void RgbxFromYcc(const int16_t* luma, const int16_t* blue, const int16_t* red, size_t pixels, uint8_t* rgbx) {
  HWY_DYNAMIC_DISPATCH(RgbxFromYccImpl)(luma, blue, red, pixels, rgbx);
}

void ScaleBytes(const uint8_t* values, size_t count, double factor, double summand, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(ScaleBytesImpl)(values, count, factor, summand, out);
}

void PackRgb(const uint8_t* rgbx, size_t pixels, uint8_t* rgb) {
  HWY_DYNAMIC_DISPATCH(PackRgbImpl)(rgbx, pixels, rgb);
}

void SplitRgb(const uint8_t* rgbx, size_t pixels, uint8_t* red, uint8_t* green, uint8_t* blue) {
  HWY_DYNAMIC_DISPATCH(SplitRgbImpl)(rgbx, pixels, red, green, blue);
}

}  // namespace millrace::kernels
#endif  // HWY_ONCE
