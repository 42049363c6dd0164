#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

/// Holds a small image in memory: rows without gaps, `channels` bytes (1 or 3) a pixel.
struct Pixels {
  int width = 0;
  int height = 0;
  int channels = 0;
  std::vector<uint8_t> bytes;

  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  uint8_t* row(int y) { return bytes.data() + row_bytes() * static_cast<size_t>(y); }
  const uint8_t* row(int y) const { return bytes.data() + row_bytes() * static_cast<size_t>(y); }
  void Resize(int new_width, int new_height, int new_channels) {
    width = new_width;
    height = new_height;
    channels = new_channels;
    bytes.resize(row_bytes() * static_cast<size_t>(height));
  }
};

}  // namespace millrace
