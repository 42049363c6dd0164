#include "decode/output.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/rng.h"
#include "decode/exact_math.h"
#include "decode/resample_kernels.h"

namespace millrace {
namespace {

// Draws from the standard normal distribution.
double Normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.Unit()));
  return radius * std::cos(2 * std::numbers::pi * rng.Unit());
}

}  // namespace

void ImageOutput::Start(const ImageSpec& spec, MutableByteSpan out, MutableByteSpan pixels) {
  spec_ = &spec;
  out_ = reinterpret_cast<uint8_t*>(out.data());
  pixels_ = reinterpret_cast<uint8_t*>(pixels.data());
  if (spec.dtype == DType::kF32) floats_.Set(spec.mean, spec.std);
  const size_t most = static_cast<size_t>(spec.width) * 3 + kernels::kSlackBytes;
  if (packed_.size() < most) packed_.resize(most);
}

void ImageOutput::Put(int y, const uint8_t* row) {
  const size_t width = spec_->width;
  if (spec_->channels == 1) return PutPacked(y, row);
  const bool bytes = spec_->dtype == DType::kU8;
  if (bytes && spec_->layout == Layout::kNchw && pixels_ == nullptr) {
    const size_t plane = width * spec_->height;
    uint8_t* const first = out_ + width * y;
    return kernels::SplitRgb(row, width, first, first + plane, first + 2 * plane);
  }
  if (bytes && spec_->layout == Layout::kNhwc) {
    uint8_t* const into = out_ + width * 3 * y;
    kernels::PackRgb(row, width, into);
    if (pixels_ != nullptr) std::memcpy(pixels_ + width * 3 * y, into, width * 3);
    return;
  }
  if (!bytes && spec_->layout == Layout::kNchw) {
    uint8_t* const planes = packed_.data();
    kernels::SplitRgb(row, width, planes, planes + width, planes + 2 * width);
    for (int c = 0; c < 3; ++c) PutPlane(y, c, planes + width * static_cast<size_t>(c));
    if (pixels_ != nullptr) kernels::PackRgb(row, width, pixels_ + width * 3 * y);
    return;
  }
  kernels::PackRgb(row, width, packed_.data());
  PutPacked(y, packed_.data());
}

void ImageOutput::PutPacked(int y, const uint8_t* row) {
  const size_t width = spec_->width;
  const size_t size = width * spec_->channels;
  if (pixels_ != nullptr) std::memcpy(pixels_ + size * y, row, size);
  if (spec_->dtype == DType::kF32) return PutFloats(y, row);
  if (spec_->channels == 1 || spec_->layout == Layout::kNhwc) {
    std::memcpy(out_ + size * y, row, size);
    return;
  }
  const size_t plane = width * spec_->height;
  uint8_t* const to = out_ + width * y;
  for (size_t x = 0; x < width; ++x) {
    for (size_t c = 0; c < 3; ++c) to[plane * c + x] = row[3 * x + c];
  }
}

// The caller's bytes need not be aligned, so floats are copied as bytes.
void ImageOutput::PutFloats(int y, const uint8_t* packed) const {
  const size_t width = spec_->width;
  const size_t channels = spec_->channels;
  if (channels == 1) return PutPlane(y, 0, packed);
  if (spec_->layout == Layout::kNhwc) {
    return floats_.Packed(packed, width, channels, out_ + width * channels * y * sizeof(float));
  }
  for (size_t c = 0; c < channels; ++c) {
    uint8_t* to = out_ + (width * spec_->height * c + width * y) * sizeof(float);
    for (size_t x = 0; x < width; ++x, to += sizeof(float)) {
      const float value = floats_.At(c, packed[x * channels + c]);
      std::memcpy(to, &value, sizeof(value));
    }
  }
}

void ImageOutput::PutPlane(int y, int channel, const uint8_t* plane) const {
  const size_t width = spec_->width;
  uint8_t* to = out_ + (width * spec_->height * channel + width * y) * sizeof(float);
  floats_.Plane(plane, width, static_cast<size_t>(channel), to);
}

// Returns the place of a number of the image in `out_`, counted in numbers.
size_t ImageOutput::PlaceOf(int y, int x, int channel) const {
  const size_t width = spec_->width;
  const size_t at = width * static_cast<size_t>(y) + static_cast<size_t>(x);
  if (spec_->layout == Layout::kNhwc) return at * static_cast<size_t>(spec_->channels) + static_cast<size_t>(channel);
  return width * static_cast<size_t>(spec_->height) * static_cast<size_t>(channel) + at;
}

void ImageOutput::Erase(const ErasedPart& part, const ImageTransform& erasing, uint64_t key) {
  const std::vector<double>& n = erasing.numbers;
  const bool random = n[4] != 0;
  const bool normalised = n[5] != 0;
  Rng rng(key);
  for (int c = 0; c < spec_->channels; ++c) {
    const double fill = n[6 + static_cast<size_t>(c)];
    const auto byte = static_cast<uint8_t>(RoundToEven(std::clamp(fill, 0.0, 1.0) * 255));
    for (int y = part.top; y < part.top + part.height; ++y) {
      for (int x = part.left; x < part.left + part.width; ++x) {
        if (pixels_ != nullptr) {
          const size_t at = static_cast<size_t>(spec_->width) * static_cast<size_t>(y) + static_cast<size_t>(x);
          pixels_[at * static_cast<size_t>(spec_->channels) + static_cast<size_t>(c)] = random ? 0 : byte;
        }
        if (spec_->dtype == DType::kU8) {
          out_[PlaceOf(y, x, c)] = byte;
          continue;
        }
        double value = random ? Normal(rng) : fill;
        if (!normalised) value = (value - double{spec_->mean[c]}) / double{spec_->std[c]};
        const auto stored = static_cast<float>(value);
        std::memcpy(out_ + PlaceOf(y, x, c) * sizeof(float), &stored, sizeof(stored));
      }
    }
  }
}

}  // namespace millrace
