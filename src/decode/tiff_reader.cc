#include <fmt/format.h>
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "decode/image_readers.h"
#include "decode/resample_kernels.h"
#include "decode/tiff_file.h"

namespace millrace {
namespace {

constexpr size_t kTiffPixelBytes = 4;
constexpr uint64_t kUsualLineBytes = uint64_t{1} << 20;

class TiffRowReader final : public RowReader {
 public:
  absl::StatusOr<ImageSize> Open(ByteSpan encoded) override;
  bool can_shrink() const override { return false; }
  bool may_be_numbers() const override { return samples_ == 1; }
  uint64_t held_bytes() const override { return held_; }
  absl::Status Start(const Region& region, int denominator, PixelForm form) override;
  absl::StatusOr<RowBlock> Next() override;
  absl::Status Finish() override;
  void Close() override;

 private:
  /// Says how pixels are read.
  enum class Way : uint8_t {
    kLines,   // row by row
    kTiles,   // a row of tiles at a time
    kPlanes,  // a colour after the other, as they are stored
    kWhole,   // by libtiff's conversion to RGBA, for all that is rare
  };

  uint16_t Get(uint32_t tag, uint16_t usual) const;
  absl::Status Error() const;
  bool IsPlain() const;
  absl::Status CheckMeaning() const;
  absl::Status ChooseWay();
  absl::Status ReadLine(uint16_t plane = 0);
  absl::Status ReadTiles();
  absl::Status ReadPlanes();
  absl::Status ReadTile(uint32_t x, uint32_t y, uint16_t plane);
  bool HasAssociatedAlpha() const;
  bool HasPhotometric() const;
  void Show(const std::array<unsigned, 4>& samples, uint8_t* to) const;
  void Expand(const uint8_t* from, int pixels, uint8_t* to) const;
  unsigned SampleAt(const uint8_t* line, size_t number) const;

  TiffFile file_;
  std::unique_ptr<TIFF, CloseTiffFile> tiff_;
  ImageSize size_;
  uint16_t bits_ = 1;
  uint16_t samples_ = 1;
  uint16_t photometric_ = PHOTOMETRIC_MINISBLACK;
  bool associated_alpha_ = false;  // colours are multiplied by the fourth sample
  Way way_ = Way::kWhole;
  uint64_t held_ = 0;
  uint32_t tile_width_ = 0;
  uint32_t tile_height_ = 0;
  std::array<std::array<uint8_t, 4>, 256> palette_{};
  Region region_;
  PixelForm form_ = PixelForm::kRgbx;
  int next_row_ = 0;     // that Next gives
  int next_stored_ = 0;  // that is read next
  std::vector<uint8_t> line_;
  std::vector<uint8_t> pixels_;  // a row; a row of tiles; all of it
};

uint16_t TiffRowReader::Get(uint32_t tag, uint16_t usual) const {
  uint16_t value = usual;
  return TIFFGetFieldDefaulted(tiff_.get(), tag, &value) == 1 ? value : usual;
}

absl::Status TiffRowReader::Error() const {
  return absl::DataLossError(
      fmt::format("the TIFF is damaged: {}", file_.error.empty() ? "it cannot be read" : file_.error));
}

absl::StatusOr<ImageSize> TiffRowReader::Open(ByteSpan encoded) {
  Close();
  file_ = {encoded, 0, ""};
  ASSIGN_OR_RETURN(tiff_, OpenTiff(&file_));
  if (tiff_ == nullptr) return Error();
  uint32_t width = 0;
  uint32_t height = 0;
  if (TIFFGetField(tiff_.get(), TIFFTAG_IMAGEWIDTH, &width) != 1 ||
      TIFFGetField(tiff_.get(), TIFFTAG_IMAGELENGTH, &height) != 1) {
    return absl::DataLossError("the TIFF is damaged: it does not say its size");
  }
  RETURN_IF_ERROR(CheckImageSize(width, height));
  size_ = {static_cast<int>(width), static_cast<int>(height)};
  RETURN_IF_ERROR(ChooseWay());
  return size_;
}

// Returns whether rows are numbers that need no more than a table or their high byte.
bool TiffRowReader::IsPlain() const {
  if (Get(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT) != SAMPLEFORMAT_UINT) return false;
  const bool small = (bits_ == 1 || bits_ == 2 || bits_ == 4) && samples_ == 1;
  switch (photometric_) {
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_MINISWHITE:
      return small || bits_ == 8 || bits_ == 16;
    case PHOTOMETRIC_PALETTE:
      return small || (bits_ == 8 && samples_ == 1);
    case PHOTOMETRIC_RGB:
      return samples_ >= 3 && (bits_ == 8 || bits_ == 16);
    case PHOTOMETRIC_SEPARATED:  // CMYK
      return samples_ >= 4 && (bits_ == 8 || bits_ == 16);
    default:
      return false;
  }
}

bool TiffRowReader::HasPhotometric() const {
  uint16_t photometric = 0;
  return TIFFGetField(tiff_.get(), TIFFTAG_PHOTOMETRIC, &photometric) == 1;
}

// Returns true if colours were multiplied by their alpha, which Pillow takes back.
bool TiffRowReader::HasAssociatedAlpha() const {
  uint16_t count = 0;
  uint16_t* kinds = nullptr;
  return photometric_ == PHOTOMETRIC_RGB && samples_ > 3 &&
         TIFFGetField(tiff_.get(), TIFFTAG_EXTRASAMPLES, &count, &kinds) == 1 && count > 0 &&
         kinds[0] == EXTRASAMPLE_ASSOCALPHA;
}

// libtiff would show these in other colours than Pillow.
absl::Status TiffRowReader::CheckMeaning() const {
  if (samples_ > 2 && !HasPhotometric()) {
    return absl::InvalidArgumentError(
        "cannot decode a TIFF that does not say what its samples stand for (the tag PhotometricInterpretation); "
        "convert it when packing");
  }
  if (photometric_ == PHOTOMETRIC_CIELAB || photometric_ == PHOTOMETRIC_ICCLAB || photometric_ == PHOTOMETRIC_ITULAB) {
    return absl::InvalidArgumentError(
        "cannot decode a TIFF in L*a*b*, whose colours depend on a profile; convert it to RGB");
  }
  const uint16_t format = Get(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  const bool natural = format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID;
  if (natural || bits_ == 8) return absl::OkStatus();  // Pillow reads 8 bits as natural numbers
  return absl::InvalidArgumentError(fmt::format(
      "cannot decode a TIFF of {} numbers of {} bits as a picture; store 8 or 16 bits without a sign, or an array of "
      "NumPy",
      format == SAMPLEFORMAT_INT ? "signed" : "floating-point", bits_));
}

absl::Status TiffRowReader::ChooseWay() {
  const uint16_t compression = Get(TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  if (!IsBoundedMethod(compression)) {
    const TIFFCodec* const codec = TIFFFindCODEC(compression);
    return absl::InvalidArgumentError(
        fmt::format("cannot decode a TIFF compressed by {}; store it uncompressed, or by LZW, Deflate, JPEG or zstd",
                    codec == nullptr ? fmt::format("method {}", compression) : std::string(codec->name)));
  }
  bits_ = Get(TIFFTAG_BITSPERSAMPLE, 1);
  samples_ = Get(TIFFTAG_SAMPLESPERPIXEL, 1);
  // Pillow takes 0 for white if the file does not say it.
  photometric_ = HasPhotometric() ? Get(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK) : PHOTOMETRIC_MINISWHITE;
  associated_alpha_ = HasAssociatedAlpha();
  if (photometric_ != PHOTOMETRIC_PALETTE && SaysPalette(file_.bytes)) {
    return absl::DataLossError("the TIFF is damaged: its color map is missing or cut off");
  }
  if (photometric_ == PHOTOMETRIC_YCBCR && compression == COMPRESSION_JPEG && samples_ == 3 &&
      Get(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_CONTIG) {
    TIFFSetField(tiff_.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    photometric_ = PHOTOMETRIC_RGB;
  }
  RETURN_IF_ERROR(CheckMeaning());
  const bool tiled = TIFFIsTiled(tiff_.get()) != 0;
  const bool separate = samples_ > 1 && Get(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) != PLANARCONFIG_CONTIG;
  way_ = !IsPlain() ? Way::kWhole : separate ? Way::kPlanes : tiled ? Way::kTiles : Way::kLines;
  const auto pixels = static_cast<uint64_t>(size_.width) * static_cast<uint64_t>(size_.height);
  held_ = way_ == Way::kWhole || way_ == Way::kPlanes ? pixels * kTiffPixelBytes : 0;
  uint64_t unit = 0;
  if (tiled) {
    tile_width_ = tile_height_ = 0;
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &tile_width_);
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &tile_height_);
    unit = TIFFTileSize64(tiff_.get());
    if (tile_width_ == 0 || tile_height_ == 0 || unit == 0) return Error();
    if (way_ == Way::kTiles) {
      held_ += uint64_t{std::min<uint32_t>(tile_height_, static_cast<uint32_t>(size_.height))} * kTiffPixelBytes *
               static_cast<uint64_t>(size_.width);
    }
  } else {
    const bool by_line = way_ == Way::kLines || way_ == Way::kPlanes;
    unit = by_line ? TIFFScanlineSize64(tiff_.get()) : TIFFStripSize64(tiff_.get());
    if (unit == 0) return Error();
  }
  if (unit > kMaxCodecBytes || held_ > kMaxCodecBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "a TIFF of {} x {} pixels needs {} MiB to decode and the limit is {} MiB; store it in smaller strips "
        "or tiles, as 8-bit grey or RGB",
        size_.width, size_.height, std::max(unit, held_) >> 20, kMaxCodecBytes >> 20));
  }
  // Rows of usual sizes are scratch; libtiff's conversion holds each of up to four planes.
  if (way_ != Way::kLines || unit > kUsualLineBytes) {
    held_ += way_ == Way::kWhole && separate ? unit * std::min<uint64_t>(samples_, 4) : unit;
  }
  file_.error.clear();  // about tags that are not needed
  return absl::OkStatus();
}

absl::Status TiffRowReader::Start(const Region& region, int /*denominator*/, PixelForm form) {
  const bool grey = photometric_ == PHOTOMETRIC_MINISBLACK && samples_ == 1;
  if (form == PixelForm::kNumbers && photometric_ == PHOTOMETRIC_MINISWHITE && samples_ == 1) {
    return absl::InvalidArgumentError(
        "a TIFF whose 0 is white, and a map of numbers is wanted: programs differ in whether they invert its numbers; "
        "store it with 0 as black (PhotometricInterpretation 1), or as a PNG");
  }
  if (form == PixelForm::kNumbers &&
      (way_ == Way::kWhole || bits_ > 8 || (!grey && photometric_ != PHOTOMETRIC_PALETTE))) {
    return NotNumbers("a TIFF in colour or of more than 8 bits");
  }
  region_ = region;
  form_ = form;
  next_row_ = region.top;
  next_stored_ = 0;
  palette_ = {};
  uint16_t* red = nullptr;
  uint16_t* green = nullptr;
  uint16_t* blue = nullptr;
  if (way_ != Way::kWhole && photometric_ == PHOTOMETRIC_PALETTE) {  // of 8 bits at most (IsPlain)
    if (TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &red, &green, &blue) != 1) return Error();
    for (size_t i = 0; i < size_t{1} << bits_; ++i) {
      palette_[i] = {static_cast<uint8_t>(red[i] >> 8), static_cast<uint8_t>(green[i] >> 8),
                     static_cast<uint8_t>(blue[i] >> 8), 0};
    }
  }
  const size_t row = static_cast<size_t>(size_.width) * kTiffPixelBytes;
  if (way_ == Way::kLines) {
    line_.resize(static_cast<size_t>(TIFFScanlineSize64(tiff_.get())));
    pixels_.resize(row + kernels::kSlackBytes);
    while (next_stored_ < region.top) RETURN_IF_ERROR(ReadLine());
    return absl::OkStatus();
  }
  if (way_ == Way::kTiles) {
    line_.resize(static_cast<size_t>(TIFFTileSize64(tiff_.get())));
    pixels_.resize(row * std::min<uint32_t>(tile_height_, static_cast<uint32_t>(size_.height)) + kernels::kSlackBytes);
    while (next_stored_ <= region.top) RETURN_IF_ERROR(ReadTiles());
    return absl::OkStatus();
  }
  pixels_.resize(row * static_cast<size_t>(size_.height) + kernels::kSlackBytes);
  if (way_ == Way::kPlanes) return ReadPlanes();
  // The image is read as it is stored.
  TIFFSetField(tiff_.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
  std::array<char, 1024> why{};
  if (TIFFRGBAImageOK(tiff_.get(), why.data()) != 1) {
    return absl::InvalidArgumentError(
        fmt::format("cannot decode this kind of TIFF: {}; convert it when packing", why.data()));
  }
  // The bytes are in the order R, G, B, A, as all machines that Millrace runs on are little-endian.
  const int read =
      TIFFReadRGBAImageOriented(tiff_.get(), static_cast<uint32_t>(size_.width), static_cast<uint32_t>(size_.height),
                                reinterpret_cast<uint32_t*>(pixels_.data()), ORIENTATION_TOPLEFT, 1);
  return read == 1 && file_.error.empty() ? absl::OkStatus() : Error();
}

absl::Status TiffRowReader::ReadLine(uint16_t plane) {
  const int read = TIFFReadScanline(tiff_.get(), line_.data(), static_cast<uint32_t>(next_stored_), plane);
  ++next_stored_;
  return read == 1 && file_.error.empty() ? absl::OkStatus() : Error();
}

// Reads one tile, whose rows within the image must be whole.
absl::Status TiffRowReader::ReadTile(uint32_t x, uint32_t y, uint16_t plane) {
  const size_t rows = std::min<uint32_t>(tile_height_, static_cast<uint32_t>(size_.height) - y);
  const tmsize_t read = TIFFReadTile(tiff_.get(), line_.data(), x, y, 0, plane);
  const bool whole = read >= 0 && static_cast<size_t>(read) >= TIFFTileRowSize64(tiff_.get()) * rows;
  return whole && file_.error.empty() ? absl::OkStatus() : Error();
}

// Reads the tiles of the next rows, converted.
absl::Status TiffRowReader::ReadTiles() {
  const int rows = static_cast<int>(
      std::min<uint32_t>(tile_height_, static_cast<uint32_t>(size_.height) - static_cast<uint32_t>(next_stored_)));
  const size_t tile_row = static_cast<size_t>(TIFFTileRowSize64(tiff_.get()));
  for (uint32_t x = 0; x < static_cast<uint32_t>(size_.width); x += tile_width_) {
    RETURN_IF_ERROR(ReadTile(x, static_cast<uint32_t>(next_stored_), 0));
    const int columns = static_cast<int>(std::min<uint32_t>(tile_width_, static_cast<uint32_t>(size_.width) - x));
    for (int y = 0; y < rows; ++y) {
      const size_t at = (static_cast<size_t>(y) * static_cast<size_t>(size_.width) + x) * kTiffPixelBytes;
      Expand(line_.data() + tile_row * static_cast<size_t>(y), columns, pixels_.data() + at);
    }
    if (tile_width_ >= static_cast<uint32_t>(size_.width)) break;  // x may not reach so far
  }
  next_stored_ += rows;
  return absl::OkStatus();
}

// Reads all of the image, whose samples are in planes of their own: of 8 or 16 bits, since IsPlain asks for that.
absl::Status TiffRowReader::ReadPlanes() {
  const auto width = static_cast<uint32_t>(size_.width);
  const auto height = static_cast<uint32_t>(size_.height);
  const bool tiled = TIFFIsTiled(tiff_.get()) != 0;
  line_.resize(static_cast<size_t>(tiled ? TIFFTileSize64(tiff_.get()) : TIFFScanlineSize64(tiff_.get())));
  const size_t tile_row = tiled ? static_cast<size_t>(TIFFTileRowSize64(tiff_.get())) : 0;
  const auto put = [&](const uint8_t* from, uint32_t x, uint32_t y, uint32_t columns, size_t plane) {
    uint8_t* to = pixels_.data() + (size_t{y} * width + x) * kTiffPixelBytes + plane;
    for (size_t i = 0; i < columns; ++i) to[i * kTiffPixelBytes] = static_cast<uint8_t>(SampleAt(from, i));
  };
  const auto planes = static_cast<uint16_t>(std::min<size_t>(samples_, kTiffPixelBytes));
  for (uint16_t plane = 0; plane < planes; ++plane) {
    for (uint32_t y = 0; y < height; y += tiled ? tile_height_ : 1) {
      if (!tiled) {
        next_stored_ = static_cast<int>(y);
        RETURN_IF_ERROR(ReadLine(plane));
        put(line_.data(), 0, y, width, plane);
        continue;
      }
      for (uint32_t x = 0; x < width; x += tile_width_) {
        RETURN_IF_ERROR(ReadTile(x, y, plane));
        const uint32_t rows = std::min(tile_height_, height - y);
        for (uint32_t row = 0; row < rows; ++row)
          put(line_.data() + tile_row * row, x, y + row, std::min(tile_width_, width - x), plane);
        if (tile_width_ >= width) break;  // x may not reach so far
      }
      if (tile_height_ >= height) break;
    }
  }
  for (size_t i = 0; i < size_t{width} * height; ++i) {
    uint8_t* const pixel = pixels_.data() + i * kTiffPixelBytes;
    Show({pixel[0], pixel[1], pixel[2], pixel[3]}, pixel);
  }
  return absl::OkStatus();
}

// Writes the RGB of a pixel of 8 bits a sample, by Pillow's arithmetic.
void TiffRowReader::Show(const std::array<unsigned, 4>& samples, uint8_t* to) const {
  if (photometric_ == PHOTOMETRIC_RGB) {
    const unsigned alpha = associated_alpha_ ? samples[3] : 255;
    for (size_t c = 0; c < 3; ++c)
      to[c] = static_cast<uint8_t>(alpha == 0 ? 0 : std::min(255u, samples[c] * 255 / alpha));
  } else if (photometric_ == PHOTOMETRIC_SEPARATED) {
    for (size_t c = 0; c < samples.size(); ++c) to[c] = static_cast<uint8_t>(255 - samples[c]);
    RgbxFromInvertedCmyk(to, 1);
  } else {
    to[0] = to[1] = to[2] =
        static_cast<uint8_t>(photometric_ == PHOTOMETRIC_MINISWHITE ? 255 - samples[0] : samples[0]);
  }
}

unsigned TiffRowReader::SampleAt(const uint8_t* line, size_t number) const {
  if (bits_ == 8) return line[number];
  if (bits_ == 16) return LoadLe<uint16_t>(line + 2 * number) >> 8;
  const size_t bit = number * bits_;
  return line[bit / 8] >> (8u - bits_ - bit % 8) & ((1u << bits_) - 1);
}

// Converts stored pixels to RGBX, with four bytes each. Numbers become the first byte.
void TiffRowReader::Expand(const uint8_t* from, int pixels, uint8_t* to) const {
  const unsigned most = bits_ >= 8 ? 255 : (1u << bits_) - 1;
  for (size_t x = 0; x < static_cast<size_t>(pixels); ++x, to += kTiffPixelBytes) {
    if (photometric_ == PHOTOMETRIC_SEPARATED || associated_alpha_) {
      std::array<unsigned, 4> all{};
      for (size_t c = 0; c < all.size(); ++c) all[c] = SampleAt(from, x * samples_ + c);
      Show(all, to);
      continue;
    }
    if (photometric_ == PHOTOMETRIC_RGB) {
      for (size_t c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(SampleAt(from, x * samples_ + c));
      continue;
    }
    const unsigned sample = SampleAt(from, x * samples_);
    if (form_ == PixelForm::kNumbers) {
      to[0] = static_cast<uint8_t>(sample);
    } else if (photometric_ == PHOTOMETRIC_PALETTE) {
      std::memcpy(to, palette_[sample].data(), kTiffPixelBytes);
    } else {
      const unsigned light = (photometric_ == PHOTOMETRIC_MINISWHITE ? most - sample : sample) * 255 / most;
      to[0] = to[1] = to[2] = static_cast<uint8_t>(light);
    }
  }
}

absl::StatusOr<RowBlock> TiffRowReader::Next() {
  const size_t row = static_cast<size_t>(size_.width) * kTiffPixelBytes;
  uint8_t* first = pixels_.data();
  if (way_ == Way::kLines) {
    RETURN_IF_ERROR(ReadLine());
    Expand(line_.data(), size_.width, first);
  } else if (way_ == Way::kTiles) {
    while (next_stored_ <= next_row_) RETURN_IF_ERROR(ReadTiles());
    first += row * (static_cast<size_t>(next_row_) % tile_height_);
  } else {
    first += row * static_cast<size_t>(next_row_);
  }
  ++next_row_;
  if (form_ == PixelForm::kGrey) GreyFromRgbx(first, static_cast<size_t>(size_.width), first);
  if (form_ == PixelForm::kNumbers) {
    for (size_t x = 0; x < static_cast<size_t>(size_.width); ++x) first[x] = first[x * kTiffPixelBytes];
  }
  return RowBlock{first + region_.left * BytesOf(form_), row, 1};
}

absl::Status TiffRowReader::Finish() {
  while (way_ == Way::kLines && next_stored_ < size_.height) RETURN_IF_ERROR(ReadLine());
  while (way_ == Way::kTiles && next_stored_ < size_.height) RETURN_IF_ERROR(ReadTiles());
  return absl::OkStatus();
}

void TiffRowReader::Close() {
  tiff_.reset();
  std::vector<uint8_t>().swap(pixels_);
  std::vector<uint8_t>().swap(line_);
}

}  // namespace

std::unique_ptr<RowReader> MakeTiffReader() {
  return std::make_unique<TiffRowReader>();
}

}  // namespace millrace
