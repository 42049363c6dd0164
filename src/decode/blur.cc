#include "decode/blur.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "decode/exact_math.h"

namespace millrace {
namespace {

std::vector<float> Kernel(int side, double sigma) {
  std::vector<double> weights(static_cast<size_t>(side));
  double total = 0;
  for (int i = 0; i < side; ++i) {
    const double away = (i - (side - 1) * 0.5) / sigma;
    weights[static_cast<size_t>(i)] = ExpOfMinus(0.5 * away * away);
    total += weights[static_cast<size_t>(i)];
  }
  std::vector<float> kernel;
  kernel.reserve(weights.size());
  for (const double weight : weights) kernel.push_back(static_cast<float>(weight / total));
  return kernel;
}

int Mirrored(int at, int size) {
  if (at < 0) at = -at;
  return at >= size ? 2 * (size - 1) - at : at;
}

int AtMost(int kernel, int side) {
  return std::min(kernel, 2 * side - 1);
}

}  // namespace

void GaussianBlur(Pixels* image, int kernel_width, int kernel_height, double sigma) {
  const int channels = image->channels;
  const std::vector<float> across = Kernel(AtMost(kernel_width, image->width), sigma);
  const std::vector<float> down = Kernel(AtMost(kernel_height, image->height), sigma);
  const int reach_x = static_cast<int>(across.size()) / 2;
  const int reach_y = static_cast<int>(down.size()) / 2;
  const size_t row_bytes = image->row_bytes();
  std::vector<float> blurred(image->bytes.size(), 0);
  std::vector<float> wide(row_bytes + static_cast<size_t>(2 * reach_x * channels));
  for (int y = 0; y < image->height; ++y) {
    const uint8_t* const row = image->row(y);
    for (int x = -reach_x; x < image->width + reach_x; ++x) {
      const int from = Mirrored(x, image->width) * channels;
      for (int c = 0; c < channels; ++c) wide[static_cast<size_t>((x + reach_x) * channels + c)] = row[from + c];
    }
    float* const out = blurred.data() + row_bytes * static_cast<size_t>(y);
    for (size_t k = 0; k < across.size(); ++k) {
      const float* const from = wide.data() + k * static_cast<size_t>(channels);
      const float weight = across[k];
      for (size_t i = 0; i < row_bytes; ++i) out[i] += weight * from[i];
    }
  }
  std::vector<float> sum(row_bytes);
  for (int y = 0; y < image->height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (size_t k = 0; k < down.size(); ++k) {
      const int from_row = Mirrored(y + static_cast<int>(k) - reach_y, image->height);
      const float* const from = blurred.data() + row_bytes * static_cast<size_t>(from_row);
      const float weight = down[k];
      for (size_t i = 0; i < row_bytes; ++i) sum[i] += weight * from[i];
    }
    uint8_t* const row = image->row(y);
    for (size_t i = 0; i < row_bytes; ++i) row[i] = static_cast<uint8_t>(std::min(sum[i] + 0.5F, 255.0F));
  }
}

}  // namespace millrace
