#include "decode/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr double kUnit = 1 << kernels::kWeightBits;

/// Returns how far the filter reaches if nothing is reduced.
double SupportOf(Interpolation filter) {
  if (filter == Interpolation::kBicubic) return 2;
  return filter == Interpolation::kBox ? 0.5 : 1;
}

/// Rounds down a number that fits. std::floor is a call on machines of the baseline.
int Floor(double value) {
  const int whole = static_cast<int>(value);
  return whole - (value < whole ? 1 : 0);
}

double WeightAt(Interpolation filter, double x) {
  switch (filter) {
    case Interpolation::kBicubic: {
      constexpr double kSlope = -0.5;  // as Pillow has it
      const double away = std::abs(x);
      if (away < 1) return ((kSlope + 2) * away - (kSlope + 3)) * away * away + 1;
      return away < 2 ? (((away - 5) * away + 8) * away - 4) * kSlope : 0;
    }
    case Interpolation::kBox:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    default:
      return 1 - std::abs(x);
  }
}

}  // namespace

void ResizeAxis::Reserve(int outputs, int most) {
  stride_ = (most + kernels::kStrideGroup - 1) / kernels::kStrideGroup * kernels::kStrideGroup;
  first_.resize(outputs);
  relative_.resize(outputs);
  weights_.assign(static_cast<size_t>(outputs) * stride_, 0);
  taps_ = 1;
}

// All outputs get the same number of taps. Where that would reach beyond the last pixel, the window moves back.
void ResizeAxis::Align(int high) {
  const int outputs = this->outputs();
  begin_ = std::numeric_limits<int>::max();
  end_ = 0;
  for (int i = 0; i < outputs; ++i) {
    const int shift = std::max(0, first_[i] + taps_ - high);
    if (shift > 0) {
      int16_t* weight = weights_.data() + static_cast<size_t>(i) * stride_;
      std::copy_backward(weight, weight + taps_ - shift, weight + taps_);
      std::fill(weight, weight + shift, 0);
      first_[i] -= shift;
    }
    begin_ = std::min(begin_, first_[i]);
    end_ = std::max(end_, first_[i] + taps_);
  }
  for (int i = 0; i < outputs; ++i) relative_[i] = first_[i] - begin_;
}

void ResizeAxis::Build(double from, double size, int low, int high, int outputs, bool reverse, Interpolation filter) {
  const Purpose purpose{from, size, low, high, outputs, reverse, filter};
  if (purpose == purpose_) return;  // as of the image before, if all have one size
  purpose_ = {};                    // until the tables are whole
  const double scale = size / outputs;
  const double stretch = std::max(scale, 1.0);
  const double support = SupportOf(filter) * stretch;
  // A window of 2 * support touches at most that many pixels.
  const int most = std::min(static_cast<int>(std::ceil(2 * support)) + 1, high - low);
  Reserve(outputs, most);
  for (int i = 0; i < outputs; ++i) {
    const double center = from + (i + 0.5) * scale;
    int begin = std::clamp(Floor(center - support + 0.5), low, high - 1);
    int end = std::clamp(Floor(center + support + 0.5), begin + 1, high);
    raw_.clear();
    for (int pixel = begin; pixel < end; ++pixel) raw_.push_back(WeightAt(filter, (pixel + 0.5 - center) / stretch));
    const double* raw = raw_.data();
    const bool ends = filter != Interpolation::kBicubic;  // weights of 0 are at the ends only
    for (; ends && begin + 1 < end && *raw <= 0; ++raw) ++begin;
    while (ends && end - 1 > begin && raw[end - 1 - begin] <= 0) --end;
    end = std::min(end, begin + most);
    const int taps = end - begin;
    double total = 0;
    for (int k = 0; k < taps; ++k) total += raw[k];
    // Rounding the running sum, not each weight, makes the weights add up to exactly one however many there are.
    const int place = reverse ? outputs - 1 - i : i;
    int16_t* const weight = weights_.data() + static_cast<size_t>(place) * stride_;
    double running = 0;
    int before = 0;
    for (int k = 0; k < taps; ++k) {
      running += raw[k];
      const int now = k + 1 == taps ? static_cast<int>(kUnit) : Floor(running / total * kUnit + 0.5);
      weight[k] = static_cast<int16_t>(now - before);
      before = now;
    }
    first_[place] = begin;
    taps_ = std::max(taps_, taps);
  }
  Align(high);
  purpose_ = purpose;
}

void ResizeAxis::BuildHalved(const ResizeAxis& whole, int size) {
  Purpose purpose = whole.purpose_;
  purpose.halved = size;
  if (purpose == purpose_) return;
  purpose_ = {};
  const auto nearer = [](int pixel) { return pixel / 2; };
  const auto other = [size](int pixel) { return std::clamp(pixel / 2 + (pixel % 2 == 0 ? -1 : 1), 0, size - 1); };
  const auto low = [&](int pixel) { return std::min(nearer(pixel), other(pixel)); };
  const auto high = [&](int pixel) { return std::max(nearer(pixel), other(pixel)) + 1; };
  const int most = whole.taps() / 2 + 2;
  Reserve(whole.outputs(), most);
  quarters_.resize(static_cast<size_t>(most));
  for (int i = 0; i < whole.outputs(); ++i) {
    const int from = whole.first(i);
    const int begin = low(from);
    const int taps = high(from + whole.taps() - 1) - begin;
    std::fill(quarters_.begin(), quarters_.end(), 0);
    for (int k = 0; k < whole.taps(); ++k) {
      quarters_[static_cast<size_t>(nearer(from + k) - begin)] += 3 * whole.weights(i)[k];
      quarters_[static_cast<size_t>(other(from + k) - begin)] += whole.weights(i)[k];
    }
    int16_t* const weight = weights_.data() + static_cast<size_t>(i) * stride_;
    int running = 0;
    int before = 0;
    for (int k = 0; k < taps; ++k) {
      running += quarters_[static_cast<size_t>(k)];
      const int now = (running + 2) >> 2;
      weight[k] = static_cast<int16_t>(now - before);
      before = now;
    }
    first_[i] = begin;
    taps_ = std::max(taps_, taps);
  }
  Align(high(whole.end() - 1));
  purpose_ = purpose;
}

size_t StreamResizer::RingBytes(const ResizeAxis& horizontal, const ResizeAxis& vertical, int channels) {
  const size_t row = static_cast<size_t>(horizontal.outputs()) * channels + kernels::kSlackBytes;
  return row * vertical.taps() * sizeof(int16_t);
}

absl::Status StreamResizer::Start(const ResizeAxis& horizontal, const ResizeAxis& vertical, int channels) {
  horizontal_ = &horizontal;
  vertical_ = &vertical;
  channels_ = channels;
  next_row_ = vertical.begin();
  next_output_ = 0;
  row_size_ = static_cast<size_t>(horizontal.outputs()) * channels + kernels::kSlackBytes;
  const size_t ring = RingBytes(horizontal, vertical, channels) / sizeof(int16_t);
  if (ring * sizeof(int16_t) > kMaxRingBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "cannot reduce {} rows to {} of {} pixels in one step: it would take {} MiB of memory; choose an output size "
        "nearer to that of the images",
        vertical.end() - vertical.begin(), vertical.outputs(), horizontal.outputs(), ring * sizeof(int16_t) >> 20));
  }
  if (ring_.size() < ring) ring_.resize(ring);
  taps_.resize((vertical.taps() + 1) / 2 * 2);
  if (out_.size() < row_size_) out_.resize(row_size_);
  return absl::OkStatus();
}

void StreamResizer::Absorb(const uint8_t* row) {
  int16_t* const slot = ring_.data() + static_cast<size_t>(next_row_ % vertical_->taps()) * row_size_;
  if (channels_ == 4) {
    kernels::ResizeRowRgbx(row, horizontal_->view(), slot);
  } else {
    kernels::ResizeRowGrey(row, horizontal_->view(), slot);
  }
  ++next_row_;
}

const uint8_t* StreamResizer::Blend() {
  const int taps = vertical_->taps();
  int slot = vertical_->first(next_output_) % taps;
  for (int k = 0; k < taps; ++k) {
    taps_[k] = ring_.data() + static_cast<size_t>(slot) * row_size_;
    if (++slot == taps) slot = 0;
  }
  if (taps_.size() > static_cast<size_t>(taps)) taps_.back() = taps_.front();  // its weight is 0
  kernels::BlendRows(taps_.data(), vertical_->weights(next_output_), static_cast<int>(taps_.size()),
                     static_cast<size_t>(horizontal_->outputs()) * channels_, out_.data());
  return out_.data();
}

}  // namespace millrace
