#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "decode/image.h"
#include "decode/resample_kernels.h"

/// Resizes with antialiasing as Pillow and torchvision define it: with a filter whose support grows with the reduction
/// (a triangle, a cubic or a box). It is a stream: rows are put in and taken out, and memory holds only the few that a
/// row of the output needs.

namespace millrace {

/// Holds the weights of one axis of a resize. Reusable: Build replaces the contents.
class ResizeAxis {
 public:
  /// Output i of `outputs` covers the source from `from + i * size / outputs` on. Only pixels in [low, high)
  /// contribute; at least one of them must be within the covered part. `reverse` mirrors the output.
  void Build(double from, double size, int low, int high, int outputs, bool reverse,
             Interpolation filter = Interpolation::kBilinear);

  /// Builds the axis that does for samples of half the resolution, of which there are `size`, what `whole` does for
  /// pixels. The result is as if these were first doubled as libjpeg does it (a pixel takes three quarters of its
  /// sample, and a quarter of the nearest other one). Both steps are weighted sums, and so is this one.
  void BuildHalved(const ResizeAxis& whole, int size);

  /// These bound the source pixels that any output needs: [begin, end).
  int begin() const { return begin_; }
  int end() const { return end_; }
  int outputs() const { return static_cast<int>(first_.size()); }
  int taps() const { return taps_; }

  int first(int output) const { return first_[output]; }
  const int16_t* weights(int output) const { return weights_.data() + static_cast<size_t>(output) * stride_; }

  /// Returns the weights for the kernels, with positions relative to begin().
  kernels::Weights view() const { return {relative_.data(), weights_.data(), outputs(), taps_, stride_}; }

 private:
  void Reserve(int outputs, int most);
  void Align(int high);

  std::vector<int32_t> first_;     // rising, but for a reversed axis
  std::vector<int32_t> relative_;  // first_ - begin_
  std::vector<int16_t> weights_;
  std::vector<double> raw_;        // scratch: the filter at the taps of one output
  std::vector<int32_t> quarters_;  // the same of BuildHalved
  int begin_ = 0;
  int end_ = 0;
  int taps_ = 0;
  int stride_ = 0;

  /// Holds the arguments that the tables were built for.
  struct Purpose {
    double from = 0;
    double size = 0;
    int low = 0;
    int high = 0;
    int outputs = 0;
    bool reverse = false;
    Interpolation filter = Interpolation::kBilinear;
    int halved = 0;  // samples; 0: not halved
    bool operator==(const Purpose&) const = default;
  };
  Purpose purpose_;
};

/// Resizes one image row by row. Reusable; not thread-safe.
class StreamResizer {
 public:
  /// Rows have `channels` bytes a pixel: 4 (RGBX) or 1. The axes must outlive this use. InvalidArgument if the
  /// reduction is so strong that the rows in flight would exceed kMaxRingBytes.
  absl::Status Start(const ResizeAxis& horizontal, const ResizeAxis& vertical, int channels);

  /// Takes the next source row (the first is vertical.begin()); `row` points at the pixel horizontal.begin() and is
  /// readable for kernels::kSlackBytes beyond the last one. Calls emit(y, pixels) for each output row that it
  /// completes; `pixels` has outputs * channels bytes, valid during the call.
  template <typename Emit>
  void Push(const uint8_t* row, Emit&& emit) {
    Absorb(row);
    while (next_output_ < vertical_->outputs() && Ready()) {
      emit(next_output_, Blend());
      ++next_output_;
    }
  }

  /// Returns true once every output row was emitted.
  bool done() const { return next_output_ == vertical_->outputs(); }

  static constexpr size_t kMaxRingBytes = size_t{64} << 20;
  /// Returns the bytes that Start holds until the next one.
  static size_t RingBytes(const ResizeAxis& horizontal, const ResizeAxis& vertical, int channels);

 private:
  void Absorb(const uint8_t* row);
  bool Ready() const { return vertical_->first(next_output_) + vertical_->taps() <= next_row_; }
  const uint8_t* Blend();

  const ResizeAxis* horizontal_ = nullptr;
  const ResizeAxis* vertical_ = nullptr;
  int channels_ = 0;
  int next_row_ = 0;     // of the source
  int next_output_ = 0;  // row of the output
  size_t row_size_ = 0;  // numbers in a row of the ring, with slack
  std::vector<int16_t> ring_;
  std::vector<const int16_t*> taps_;
  std::vector<uint8_t> out_;
};

}  // namespace millrace
