#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "decode/jpeg_segments.h"

namespace millrace {

/// Encodes RGB pixels (3 bytes each, row by row) as a baseline JPEG with 4:2:0 chroma and the standard Huffman tables,
/// as cameras and libjpeg do by default. `quality` is libjpeg's scale, 1 to 100, in finer steps. InvalidArgument if
/// the sizes do not match. Pure.
absl::StatusOr<std::string> EncodeJpeg(std::span<const uint8_t> rgb, int width, int height, double quality);

/// Encodes a JPEG row by row. Use it once. Not thread-safe. Pure.
class JpegWriter {
 public:
  JpegWriter();
  ~JpegWriter();

  /// Baseline with the standard Huffman tables; colour has 4:2:0 chroma. `channels`: 4 (RGBX) or 1 (grey). `quality`:
  /// libjpeg's scale, 1 to 100. `kept`: marker segments of another JPEG that are stored after the head.
  absl::Status Start(int width, int height, int channels, int quality, std::span<const JpegSegment> kept);
  /// Put takes the rows from the top down.
  absl::Status Put(const uint8_t* row);
  absl::StatusOr<std::string> Finish();

  struct Compressor;

 private:
  std::unique_ptr<Compressor> c_;
};

}  // namespace millrace
