#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Makes pictures that resemble photographs in everything that matters to a decoder: shaded, textured objects before a
/// background, edges, a spectrum that falls with the frequency, a little sensor noise. Every picture differs; each is a
/// function of (seed, n, size) alone. Immutable after construction, so one serves all threads.
class ImageSynth {
 public:
  explicit ImageSynth(uint64_t seed);

  /// Renders RGB, 3 bytes a pixel. Sides are 1 to 4096.
  void Render(uint64_t n, int width, int height, std::vector<uint8_t>* rgb) const;

 private:
  static constexpr int kTextures = 3;

  const uint64_t seed_;
  std::array<std::vector<int16_t>, kTextures> textures_;  // tileable; drawn upon at random offsets
  std::vector<int8_t> noise_;
};

/// Returns picture `n` as a baseline 4:2:0 JPEG of `bytes` give or take 10 %, without padding. It has 640 x 480 pixels,
/// or fewer if the quality would have to fall below 30, with the quality that yields the size. The result is a function
/// of (seed, n, bytes). Returns InvalidArgument if no quality yields the size.
absl::StatusOr<std::string> SynthJpeg(const ImageSynth& synth, uint64_t n, uint64_t bytes);

}  // namespace millrace
