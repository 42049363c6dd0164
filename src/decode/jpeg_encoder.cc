#include "decode/jpeg_encoder.h"

#include <fmt/format.h>

#include "decode/jpeg_guard.h"
#include "decode/jpeg_target.h"
#include "decode/row_reader.h"

namespace millrace {
namespace {

/// Applies libjpeg's map of quality to the percentage by which it scales its quantisation tables, without the steps of
/// whole qualities.
int TableScale(double quality) {
  return static_cast<int>((quality < 50 ? 5000 / quality : 200 - 2 * quality) + 0.5);
}

}  // namespace

struct JpegWriter::Compressor {
  JpegGuard guard;
  JpegTarget to{&guard};
};

JpegWriter::JpegWriter() : c_(std::make_unique<Compressor>()) {}
JpegWriter::~JpegWriter() = default;

absl::Status JpegWriter::Start(int width, int height, int channels, int quality, std::span<const JpegSegment> kept) {
  jpeg_compress_struct* const jpeg = c_->to.jpeg();
  const bool ok = c_->guard.Run([&] {
    c_->to.Create();
    jpeg->image_width = static_cast<JDIMENSION>(width);
    jpeg->image_height = static_cast<JDIMENSION>(height);
    jpeg->input_components = channels;
    jpeg->in_color_space = channels == 4 ? JCS_EXT_RGBX : JCS_GRAYSCALE;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg_start_compress(jpeg, TRUE);
    for (const JpegSegment& segment : kept) {
      jpeg_write_marker(jpeg, segment.marker, reinterpret_cast<const JOCTET*>(segment.payload.data()),
                        static_cast<unsigned>(segment.payload.size()));
    }
  });
  return ok ? absl::OkStatus() : c_->guard.status();
}

absl::Status JpegWriter::Put(const uint8_t* row) {
  auto* rows = const_cast<JSAMPROW>(row);
  const bool ok = c_->guard.Run([&] { jpeg_write_scanlines(c_->to.jpeg(), &rows, 1); });
  return ok ? absl::OkStatus() : c_->guard.status();
}

absl::StatusOr<std::string> JpegWriter::Finish() {
  if (!c_->guard.Run([&] { jpeg_finish_compress(c_->to.jpeg()); })) return c_->guard.status();
  return c_->to.TakeBytes();
}

absl::StatusOr<std::string> EncodeJpeg(std::span<const uint8_t> rgb, int width, int height, double quality) {
  if (width < 1 || height < 1 || width > kMaxImageSide || height > kMaxImageSide ||
      rgb.size() != size_t{3} * width * height || !(quality >= 1 && quality <= 100)) {
    return absl::InvalidArgumentError(fmt::format("cannot encode a JPEG of {} x {} pixels from {} bytes at quality {}",
                                                  width, height, rgb.size(), quality));
  }
  JpegGuard guard;
  JpegTarget to(&guard);
  jpeg_compress_struct* const jpeg = to.jpeg();
  const bool ok = guard.Run([&] {
    to.Create();
    jpeg->image_width = static_cast<JDIMENSION>(width);
    jpeg->image_height = static_cast<JDIMENSION>(height);
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_linear_quality(jpeg, TableScale(quality), TRUE);
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < jpeg->image_height) {
      auto* row = const_cast<JSAMPROW>(rgb.data() + size_t{3} * width * jpeg->next_scanline);
      jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
  });
  if (!ok) return guard.status();
  return to.TakeBytes();
}

}  // namespace millrace
