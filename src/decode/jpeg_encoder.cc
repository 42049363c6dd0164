#include "decode/jpeg_encoder.h"

#include <fmt/format.h>

#include <cstdlib>

#include "decode/jpeg_guard.h"
#include "decode/row_reader.h"

namespace millrace {
namespace {

/// libjpeg's map of quality to the percentage by which it scales its quantisation tables, without the steps of whole
/// qualities.
int TableScale(double quality) {
  return static_cast<int>((quality < 50 ? 5000 / quality : 200 - 2 * quality) + 0.5);
}

}  // namespace

// The compressor and its output, freed whatever happens.
struct JpegWriter::Compressor {
  Compressor() = default;
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  ~Compressor() {
    if (created) jpeg_destroy_compress(&jpeg);
    std::free(buffer);
  }

  JpegGuard guard;
  jpeg_compress_struct jpeg{};
  bool created = false;
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
};

JpegWriter::JpegWriter() : c_(std::make_unique<Compressor>()) {}
JpegWriter::~JpegWriter() = default;

absl::Status JpegWriter::Start(int width, int height, int channels, int quality, std::span<const JpegSegment> kept) {
  Compressor& c = *c_;
  c.guard.Attach(reinterpret_cast<j_common_ptr>(&c.jpeg));
  const bool ok = c.guard.Run([&] {
    jpeg_create_compress(&c.jpeg);
    c.created = true;
    jpeg_mem_dest(&c.jpeg, &c.buffer, &c.size);
    c.jpeg.image_width = static_cast<JDIMENSION>(width);
    c.jpeg.image_height = static_cast<JDIMENSION>(height);
    c.jpeg.input_components = channels;
    c.jpeg.in_color_space = channels == 4 ? JCS_EXT_RGBX : JCS_GRAYSCALE;
    jpeg_set_defaults(&c.jpeg);
    jpeg_set_quality(&c.jpeg, quality, TRUE);
    jpeg_start_compress(&c.jpeg, TRUE);
    for (const JpegSegment& segment : kept) {
      jpeg_write_marker(&c.jpeg, segment.marker, reinterpret_cast<const JOCTET*>(segment.payload.data()),
                        static_cast<unsigned>(segment.payload.size()));
    }
  });
  return ok ? absl::OkStatus() : c.guard.status();
}

absl::Status JpegWriter::Put(const uint8_t* row) {
  auto* rows = const_cast<JSAMPROW>(row);
  const bool ok = c_->guard.Run([&] { jpeg_write_scanlines(&c_->jpeg, &rows, 1); });
  return ok ? absl::OkStatus() : c_->guard.status();
}

absl::StatusOr<std::string> JpegWriter::Finish() {
  if (!c_->guard.Run([&] { jpeg_finish_compress(&c_->jpeg); })) return c_->guard.status();
  return std::string(reinterpret_cast<const char*>(c_->buffer), c_->size);
}

absl::StatusOr<std::string> EncodeJpeg(std::span<const uint8_t> rgb, int width, int height, double quality) {
  if (width < 1 || height < 1 || width > kMaxImageSide || height > kMaxImageSide ||
      rgb.size() != size_t{3} * width * height || !(quality >= 1 && quality <= 100)) {
    return absl::InvalidArgumentError(fmt::format("cannot encode a JPEG of {} x {} pixels from {} bytes at quality {}",
                                                  width, height, rgb.size(), quality));
  }
  JpegWriter::Compressor c;
  c.guard.Attach(reinterpret_cast<j_common_ptr>(&c.jpeg));
  const bool ok = c.guard.Run([&] {
    jpeg_create_compress(&c.jpeg);
    c.created = true;
    jpeg_mem_dest(&c.jpeg, &c.buffer, &c.size);
    c.jpeg.image_width = static_cast<JDIMENSION>(width);
    c.jpeg.image_height = static_cast<JDIMENSION>(height);
    c.jpeg.input_components = 3;
    c.jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c.jpeg);
    jpeg_set_linear_quality(&c.jpeg, TableScale(quality), TRUE);
    jpeg_start_compress(&c.jpeg, TRUE);
    while (c.jpeg.next_scanline < c.jpeg.image_height) {
      auto* row = const_cast<JSAMPROW>(rgb.data() + size_t{3} * width * c.jpeg.next_scanline);
      jpeg_write_scanlines(&c.jpeg, &row, 1);
    }
    jpeg_finish_compress(&c.jpeg);
  });
  if (!ok) return c.guard.status();
  return std::string(reinterpret_cast<const char*>(c.buffer), c.size);
}

}  // namespace millrace
