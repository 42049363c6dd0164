#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "decode/image.h"
#include "decode/jpeg_guard.h"
#include "decode/jpeg_huffman.h"

namespace millrace::testing {

/// Holds all that a JPEG shows: its components as they are, in rows without gaps.
struct JpegPixels {
  bool ok = false;
  bool sure = false;  // there was no fault: nothing that only libjpeg can interpret
  absl::Status status;
  ImageSize size;
  J_COLOR_SPACE space = JCS_UNKNOWN;
  bool progressive = false;
  std::vector<uint8_t> bytes;
};

/// Reads the pixels through libjpeg, with its own Huffman decoder or, if it is given, with ours. Images above `most`
/// pixels are refused.
inline JpegPixels ReadJpegPixels(ByteSpan encoded, unsigned denominator, JpegHuffman* ours, uint64_t most = 1 << 20) {
  JpegPixels pixels;
  JpegGuard guard;
  jpeg_decompress_struct jpeg{};
  jpeg_progress_mgr progress{};
  guard.Attach(reinterpret_cast<j_common_ptr>(&jpeg));
  pixels.ok = guard.Run([&] {
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg.scale_denom = denominator;
    jpeg.out_color_space = jpeg.jpeg_color_space;
    jpeg.do_block_smoothing = FALSE;
    JpegGuard::LimitScans(&jpeg, &progress);
  });
  if (pixels.ok && uint64_t{jpeg.image_width} * jpeg.image_height > most) {
    jpeg_destroy_decompress(&jpeg);
    return {.status = absl::InvalidArgumentError("too large for a test")};
  }
  bool taken_over = false;
  std::vector<uint8_t>& bytes = pixels.bytes;
  pixels.ok = pixels.ok && guard.Run([&] {
    jpeg_start_decompress(&jpeg);
    taken_over = ours != nullptr && ours->TakeOver(&jpeg);
  });
  if (pixels.ok) bytes.resize(size_t{jpeg.output_width} * jpeg.output_height * jpeg.output_components);
  pixels.ok = pixels.ok && guard.Run([&] {
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = bytes.data() + size_t{jpeg.output_width} * jpeg.output_components * jpeg.output_scanline;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
  });
  if (!pixels.ok) pixels.status = guard.status();
  pixels.size = {static_cast<int>(jpeg.output_width), static_cast<int>(jpeg.output_height)};
  pixels.space = jpeg.jpeg_color_space;
  pixels.progressive = jpeg.progressive_mode != 0;
  pixels.sure = pixels.ok && guard.warnings() == 0 && !(taken_over && ours->doubled_ff());
  jpeg_destroy_decompress(&jpeg);
  return pixels;
}

}  // namespace millrace::testing
