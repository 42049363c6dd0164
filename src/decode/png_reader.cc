#include <fmt/format.h>
#include <spng.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "decode/image_readers.h"
#include "decode/png_chunks.h"
#include "decode/resample_kernels.h"

namespace millrace {
namespace {

/// These bound one ancillary chunk (colour profile, text) once inflated, and all that are kept.
constexpr size_t kMaxChunkBytes = size_t{16} << 20;
constexpr size_t kPixelBytes = 4;
/// A larger buffer (of an interlaced image) is not kept for the next image.
constexpr size_t kMaxKeptBytes = size_t{4} << 20;

absl::Status Damaged(int error) {
  if (error == SPNG_EMEM) return absl::ResourceExhaustedError("out of memory while decoding a PNG");
  return absl::DataLossError(fmt::format("the PNG is damaged: {}", spng_strerror(error)));
}

class PngReader final : public RowReader {
 public:
  absl::StatusOr<ImageSize> Open(ByteSpan encoded) override;
  bool can_shrink() const override { return false; }
  uint64_t held_bytes() const override { return is_interlaced() ? header_.width * kPixelBytes * header_.height : 0; }
  absl::Status Start(const Region& region, int denominator, PixelForm form) override;
  absl::StatusOr<RowBlock> Next() override;
  absl::Status Finish() override;
  void Close() override;

 private:
  struct FreeContext {
    void operator()(spng_ctx* context) const { spng_ctx_free(context); }
  };

  absl::Status CheckNumbers() const;
  size_t PackedBytes() const { return (size_t{header_.width} * header_.bit_depth + 7) / 8; }
  void Spread(const uint8_t* packed, uint8_t* to) const;
  static int Read(spng_ctx* context, void* reader, void* into, size_t length);
  absl::Status ReadRow();
  bool is_interlaced() const { return header_.interlace_method != SPNG_INTERLACE_NONE; }

  std::unique_ptr<spng_ctx, FreeContext> png_;
  ByteSpan encoded_;
  std::optional<std::string> changed_;  // in place of a file that Pillow reads, and spng does not
  size_t position_ = 0;
  spng_ihdr header_{};
  Region region_;
  PixelForm form_ = PixelForm::kRgbx;
  int next_row_ = 0;
  size_t row_bytes_ = 0;
  std::vector<uint8_t> pixels_;   // one row; all rows of an interlaced image
  std::vector<uint8_t> numbers_;  // of one row, or of those of the region of an interlaced image
};

absl::StatusOr<ImageSize> PngReader::Open(ByteSpan encoded) {
  png_.reset(spng_ctx_new(0));
  if (png_ == nullptr) return Damaged(SPNG_EMEM);
  int error = spng_set_crc_action(png_.get(), SPNG_CRC_ERROR, SPNG_CRC_ERROR);
  if (error == 0) error = spng_set_chunk_limits(png_.get(), kMaxChunkBytes, kMaxChunkBytes);
  ASSIGN_OR_RETURN(changed_, PngAsPillowReadsIt(encoded));
  encoded_ = changed_ ? AsBytes(*changed_) : encoded;
  position_ = 0;
  if (error == 0) error = spng_set_png_stream(png_.get(), Read, this);
  if (error == 0) error = spng_get_ihdr(png_.get(), &header_);
  if (error != 0) return Damaged(error);
  RETURN_IF_ERROR(CheckImageSize(header_.width, header_.height));
  // Chunks before the pixels must fit their checksums; those after them are not looked at, as by Pillow.
  error = spng_decode_chunks(png_.get());
  // Checksums of the pixels' chunks fit. Without them spng looks at that of their codec, which is slower.
  if (error == 0 && !changed_) error = spng_set_crc_action(png_.get(), SPNG_CRC_USE, SPNG_CRC_USE);
  if (error != 0) return Damaged(error);
  return ImageSize{static_cast<int>(header_.width), static_cast<int>(header_.height)};
}

absl::Status PngReader::Start(const Region& region, int /*denominator*/, PixelForm form) {
  if (form == PixelForm::kNumbers) RETURN_IF_ERROR(CheckNumbers());
  region_ = region;
  form_ = form;
  next_row_ = 0;
  // Packed numbers, which PngReader::Next spreads to one a byte, take less than that.
  const bool numbers = form == PixelForm::kNumbers;
  row_bytes_ = numbers ? PackedBytes() : header_.width * kPixelBytes;
  const int format = numbers ? SPNG_FMT_RAW : SPNG_FMT_RGBA8;
  const size_t bytes = row_bytes_ * (is_interlaced() ? header_.height : 1);
  if (bytes > kMaxCodecBytes) {
    return absl::InvalidArgumentError(
        fmt::format("an interlaced PNG of {} x {} pixels needs {} MiB to decode and the limit is {} MiB; store it "
                    "without interlacing",
                    header_.width, header_.height, bytes >> 20, kMaxCodecBytes >> 20));
  }
  if (pixels_.size() < bytes + kernels::kSlackBytes) pixels_.resize(bytes + kernels::kSlackBytes);
  if (is_interlaced()) {
    // spng adds numbers of less than 8 bits to what is there.
    if (numbers) std::fill_n(pixels_.begin(), bytes, uint8_t{0});
    const int error = spng_decode_image(png_.get(), pixels_.data(), bytes, format, 0);
    return error == 0 ? absl::OkStatus() : Damaged(error);
  }
  const int error = spng_decode_image(png_.get(), nullptr, 0, format, SPNG_DECODE_PROGRESSIVE);
  if (error != 0) return Damaged(error);
  while (next_row_ < region.top) RETURN_IF_ERROR(ReadRow());
  return absl::OkStatus();
}

void PngReader::Close() {
  png_.reset();
  changed_.reset();
  for (std::vector<uint8_t>* rows : {&pixels_, &numbers_}) {
    if (rows->size() > kMaxKeptBytes) std::vector<uint8_t>().swap(*rows);
  }
}

int PngReader::Read(spng_ctx* /*context*/, void* reader, void* into, size_t length) {
  auto& self = *static_cast<PngReader*>(reader);
  if (length > self.encoded_.size() - self.position_) return SPNG_IO_EOF;
  std::memcpy(into, self.encoded_.data() + self.position_, length);
  self.position_ += length;
  return SPNG_OK;
}

absl::Status PngReader::ReadRow() {
  const int error = spng_decode_row(png_.get(), pixels_.data(), row_bytes_);
  ++next_row_;
  const bool last = next_row_ == static_cast<int>(header_.height);
  return error == 0 || (last && error == SPNG_EOI) ? absl::OkStatus() : Damaged(error);
}

absl::Status PngReader::CheckNumbers() const {
  const bool grey = header_.color_type == SPNG_COLOR_TYPE_GRAYSCALE;
  if (!grey && header_.color_type != SPNG_COLOR_TYPE_INDEXED) return NotNumbers("a PNG in colour");
  if (header_.bit_depth <= 8) return absl::OkStatus();
  return absl::InvalidArgumentError("a PNG of 16-bit numbers, which do not fit into 8 bits; store it in 8 bits");
}

// Spreads numbers of 1, 2, 4 or 8 bits, the first ones in the high bits, to one a byte.
void PngReader::Spread(const uint8_t* packed, uint8_t* to) const {
  const unsigned depth = header_.bit_depth;
  const unsigned mask = (1u << depth) - 1;
  for (size_t i = 0; i < header_.width; ++i) {
    const size_t bit = i * depth;
    to[i] = static_cast<uint8_t>(packed[bit / 8] >> (8 - depth - bit % 8) & mask);
  }
}

absl::StatusOr<RowBlock> PngReader::Next() {
  uint8_t* first = pixels_.data();
  int rows = 1;
  if (!is_interlaced()) {
    RETURN_IF_ERROR(ReadRow());
  } else {
    rows = region_.bottom - region_.top;
    first += row_bytes_ * region_.top;
  }
  if (form_ == PixelForm::kNumbers) {
    const size_t width = header_.width;
    const size_t bytes = width * static_cast<size_t>(rows) + kernels::kSlackBytes;
    if (numbers_.size() < bytes) numbers_.resize(bytes);
    for (int i = 0; i < rows; ++i) Spread(first + row_bytes_ * i, numbers_.data() + width * i);
    return RowBlock{numbers_.data() + region_.left, width, rows};
  }
  if (form_ == PixelForm::kGrey) {
    for (int i = 0; i < rows; ++i) GreyFromRgbx(first + row_bytes_ * i, header_.width, first + row_bytes_ * i);
    return RowBlock{first + region_.left, row_bytes_, rows};
  }
  return RowBlock{first + region_.left * kPixelBytes, row_bytes_, rows};
}

absl::Status PngReader::Finish() {
  if (!is_interlaced()) {
    while (next_row_ < static_cast<int>(header_.height)) RETURN_IF_ERROR(ReadRow());
  }
  return absl::OkStatus();  // whatever follows the pixels
}

}  // namespace

std::unique_ptr<RowReader> MakePngReader() {
  return std::make_unique<PngReader>();
}

}  // namespace millrace
