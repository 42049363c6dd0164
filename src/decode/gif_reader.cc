#include <fmt/format.h>
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "decode/image_readers.h"
#include "decode/resample_kernels.h"

namespace millrace {
namespace {

absl::Status GifError(int code) {
  if (code == D_GIF_ERR_NOT_ENOUGH_MEM) return absl::ResourceExhaustedError("out of memory while decoding a GIF");
  const char* const text = GifErrorString(code);
  return absl::DataLossError(fmt::format("the GIF is damaged: {}", text == nullptr ? "unknown error" : text));
}

class GifReader final : public RowReader {
 public:
  absl::StatusOr<ImageSize> Open(ByteSpan encoded) override;
  bool can_shrink() const override { return false; }
  uint64_t held_bytes() const override { return width() * height(); }
  absl::Status Start(const Region& region, int denominator, PixelForm form) override;
  absl::StatusOr<RowBlock> Next() override;
  absl::Status Finish() override { return absl::OkStatus(); }  // what follows the first picture is not read
  void Close() override;

 private:
  struct CloseGif {
    void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
  };

  static int Read(GifFileType* gif, GifByteType* into, int length);
  /// A picture that is larger than the canvas makes it larger, as in Pillow.
  size_t width() const { return static_cast<size_t>(std::max(gif_->SWidth, gif_->Image.Left + gif_->Image.Width)); }
  size_t height() const { return static_cast<size_t>(std::max(gif_->SHeight, gif_->Image.Top + gif_->Image.Height)); }
  absl::Status Error() const { return GifError(gif_->Error); }
  absl::Status ReadExtension();
  absl::Status FindPicture();
  absl::Status ReadPicture();
  void TakePalette();

  ByteSpan encoded_;
  size_t position_ = 0;
  bool closes_ = false;  // the blocks of codes, at the end of the bytes
  std::unique_ptr<GifFileType, CloseGif> gif_;
  int transparent_ = NO_TRANSPARENT_COLOR;
  Region region_;
  int next_row_ = 0;
  PixelForm form_ = PixelForm::kRgbx;
  std::array<std::array<uint8_t, 4>, 256> palette_{};
  std::vector<uint8_t> indices_;
  std::vector<uint8_t> row_;
};

int GifReader::Read(GifFileType* gif, GifByteType* into, int length) {
  auto& self = *static_cast<GifReader*>(gif->UserData);
  // giflib wants the end of the codes also where all pixels are there.
  if (length == 1 && self.closes_ && self.position_ == self.encoded_.size()) {
    self.closes_ = false;
    *into = 0;
    return 1;
  }
  const size_t bytes = std::min(static_cast<size_t>(std::max(length, 0)), self.encoded_.size() - self.position_);
  std::memcpy(into, self.encoded_.data() + self.position_, bytes);
  self.position_ += bytes;
  return static_cast<int>(bytes);
}

absl::StatusOr<ImageSize> GifReader::Open(ByteSpan encoded) {
  Close();
  encoded_ = encoded;
  position_ = 0;
  closes_ = false;
  int error = 0;
  gif_.reset(DGifOpen(this, Read, &error));
  if (gif_ == nullptr) return GifError(error);
  // This comes before memory is requested: a file that merely begins as a GIF claims any size. A canvas without pixels
  // is as large as the picture.
  RETURN_IF_ERROR(FindPicture());
  RETURN_IF_ERROR(CheckImageSize(static_cast<int64_t>(width()), static_cast<int64_t>(height())));
  return ImageSize{static_cast<int>(width()), static_cast<int>(height())};
}

void GifReader::Close() {
  gif_.reset();
  std::vector<uint8_t>().swap(indices_);
}

absl::Status GifReader::ReadExtension() {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(gif_.get(), &code, &block) != GIF_OK) return Error();
  while (block != nullptr) {
    GraphicsControlBlock control;
    if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
      transparent_ = control.TransparentColor;
    }
    if (DGifGetExtensionNext(gif_.get(), &block) != GIF_OK) return Error();
  }
  return absl::OkStatus();
}

absl::Status GifReader::FindPicture() {
  transparent_ = NO_TRANSPARENT_COLOR;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif_.get(), &type) != GIF_OK) {
      if (gif_->Error == D_GIF_ERR_WRONG_RECORD) continue;  // a byte between the blocks, which Pillow passes over, too
      return Error();
    }
    if (type == IMAGE_DESC_RECORD_TYPE) break;
    if (type != EXTENSION_RECORD_TYPE) return absl::DataLossError("the GIF is damaged: it holds no picture");
    RETURN_IF_ERROR(ReadExtension());
  }
  if (DGifGetImageDesc(gif_.get()) != GIF_OK) return Error();
  const GifImageDesc& picture = gif_->Image;
  const bool some = picture.Left >= 0 && picture.Top >= 0 && picture.Width > 0 && picture.Height > 0;
  return some ? absl::OkStatus() : absl::DataLossError("the GIF is damaged: its picture has no pixels");
}

void GifReader::TakePalette() {
  const ColorMapObject* const map = gif_->Image.ColorMap != nullptr ? gif_->Image.ColorMap : gif_->SColorMap;
  for (size_t i = 0; i < palette_.size(); ++i) {
    const auto grey = static_cast<uint8_t>(i);
    palette_[i] = {grey, grey, grey, 0};
    if (map == nullptr) continue;
    if (static_cast<int>(i) >= map->ColorCount) {
      palette_[i] = {};
      continue;
    }
    const GifColorType& colour = map->Colors[i];
    palette_[i] = {colour.Red, colour.Green, colour.Blue, 0};
  }
}

absl::Status GifReader::ReadPicture() {
  const GifImageDesc& picture = gif_->Image;
  const auto background = static_cast<uint8_t>(std::max(transparent_, 0));
  indices_.assign(width() * height(), background);
  const auto read_line = [&](int y) {
    const size_t at = static_cast<size_t>(picture.Top + y) * width() + static_cast<size_t>(picture.Left);
    return DGifGetLine(gif_.get(), indices_.data() + at, picture.Width) == GIF_OK;
  };
  closes_ = true;
  if (!picture.Interlace) {
    for (int y = 0; y < picture.Height; ++y) {
      if (!read_line(y)) return Error();
    }
    return absl::OkStatus();
  }
  constexpr std::array<int, 4> kFirst = {0, 4, 2, 1};
  constexpr std::array<int, 4> kStep = {8, 8, 4, 2};
  for (size_t pass = 0; pass < kFirst.size(); ++pass) {
    for (int y = kFirst[pass]; y < picture.Height; y += kStep[pass]) {
      if (!read_line(y)) return Error();
    }
  }
  return absl::OkStatus();
}

absl::Status GifReader::Start(const Region& region, int /*denominator*/, PixelForm form) {
  region_ = region;
  form_ = form;
  next_row_ = region.top;
  TakePalette();
  row_.resize(static_cast<size_t>(region.right - region.left) * 4 + kernels::kSlackBytes);
  return ReadPicture();
}

absl::StatusOr<RowBlock> GifReader::Next() {
  const uint8_t* const indices = indices_.data() + width() * static_cast<size_t>(next_row_++);
  uint8_t* out = row_.data();
  for (int x = region_.left; x < region_.right; ++x, out += form_ == PixelForm::kNumbers ? 1 : 4) {
    if (form_ == PixelForm::kNumbers) {
      *out = indices[x];
    } else {
      std::memcpy(out, palette_[indices[x]].data(), 4);
    }
  }
  if (form_ == PixelForm::kGrey) {
    GreyFromRgbx(row_.data(), static_cast<size_t>(region_.right - region_.left), row_.data());
  }
  return RowBlock{row_.data(), row_.size(), 1};
}

}  // namespace

std::unique_ptr<RowReader> MakeGifReader() {
  return std::make_unique<GifReader>();
}

}  // namespace millrace
