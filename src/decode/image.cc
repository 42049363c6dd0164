#include "decode/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "base/crypto.h"
#include "decode/geometry.h"
#include "decode/jpeg_reader.h"
#include "decode/orientation.h"
#include "decode/png_reader.h"
#include "decode/resample.h"

namespace millrace {
namespace {

constexpr int kMaxOutputSide = 16'384;

enum class Format { kJpeg, kPng };

struct Magic {
  size_t offset;
  std::string_view bytes;
  std::string_view name;
};

using std::string_view_literals::operator""sv;

/// Formats that people store as images, to name what cannot be decoded.
constexpr Magic kForeign[] = {
    {0, "GIF8"sv, "GIF"},         {8, "WEBP"sv, "WebP"},
    {0, "II*\0"sv, "TIFF"},       {0, "MM\0*"sv, "TIFF"},
    {0, "BM"sv, "BMP"},           {4, "ftypavif"sv, "AVIF"},
    {4, "ftyphei"sv, "HEIF"},     {4, "jP  \r\n"sv, "JPEG 2000"},
    {4, "JXL \r\n"sv, "JPEG XL"}, {0, "\xff\x0a"sv, "JPEG XL"},
};

absl::StatusOr<Format> Sniff(ByteSpan encoded) {
  const std::string_view text = AsText(encoded);
  if (text.starts_with("\xff\xd8\xff"sv)) return Format::kJpeg;
  if (text.starts_with("\x89PNG\r\n\x1a\n"sv)) return Format::kPng;
  for (const Magic& magic : kForeign) {
    if (text.size() >= magic.offset && text.substr(magic.offset).starts_with(magic.bytes)) {
      return absl::InvalidArgumentError(fmt::format(
          "cannot decode an image of type {}; Millrace decodes JPEG and PNG, so convert it when packing", magic.name));
    }
  }
  if (text.empty()) return absl::DataLossError("the image is empty (0 bytes)");
  const auto* first = reinterpret_cast<const uint8_t*>(encoded.data());
  return absl::DataLossError(fmt::format("neither a JPEG nor a PNG: {} bytes that begin with {}", text.size(),
                                         HexEncode({first, std::min<size_t>(encoded.size(), 8)})));
}

absl::Status Invalid(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("image options: {}", what));
}

/// Puts rows of u8 pixels where the spec wants them.
class Output {
 public:
  /// Forgets nothing that matters: the table is a function of mean and std.
  void Start(const ImageSpec& spec, MutableByteSpan out, MutableByteSpan pixels) {
    spec_ = &spec;
    out_ = reinterpret_cast<uint8_t*>(out.data());
    pixels_ = reinterpret_cast<uint8_t*>(pixels.data());
    if (spec.dtype == DType::kF32) BuildTable(spec);
    if (packed_.size() < static_cast<size_t>(spec.width) * 3) packed_.resize(static_cast<size_t>(spec.width) * 3);
  }

  /// Row `y`: RGBX, or grey when the spec has one channel.
  void Put(int y, const uint8_t* row) {
    const size_t width = spec_->width;
    const size_t size = width * spec_->channels;
    const uint8_t* packed = row;
    if (spec_->channels == 3) {
      const bool planes = spec_->layout == Layout::kNchw && spec_->dtype == DType::kU8;
      if (planes) {
        const size_t plane = width * spec_->height;
        uint8_t* const first = out_ + width * y;
        kernels::SplitRgb(row, width, first, first + plane, first + 2 * plane);
        if (pixels_ == nullptr) return;
      }
      const bool direct = !planes && spec_->dtype == DType::kU8;
      uint8_t* const into = direct ? out_ + size * y : packed_.data();
      kernels::PackRgb(row, width, into);
      packed = into;
      if (pixels_ != nullptr) std::memcpy(pixels_ + size * y, packed, size);
      if (planes || direct) return;
    } else if (pixels_ != nullptr) {
      std::memcpy(pixels_ + size * y, packed, size);
    }
    if (spec_->dtype == DType::kU8) {
      std::memcpy(out_ + size * y, packed, size);
    } else {
      PutFloats(y, packed);
    }
  }

 private:
  using Tables = std::array<std::array<float, 256>, 3>;

  /// All that normalisation can yield. Looked up instead of calculated: exact to the last digit, on every instruction
  /// set.
  void BuildTable(const ImageSpec& spec) {
    if (table_mean_ == spec.mean && table_std_ == spec.std) return;
    for (int c = 0; c < 3; ++c) {
      for (int v = 0; v < 256; ++v) {
        table_[c][v] = static_cast<float>((v / 255.0 - double{spec.mean[c]}) / double{spec.std[c]});
      }
    }
    table_mean_ = spec.mean;
    table_std_ = spec.std;
  }

  void PutFloats(int y, const uint8_t* packed) const {
    const size_t width = spec_->width;
    const size_t channels = spec_->channels;
    // The caller's bytes need not be aligned, so floats are copied as bytes.
    if (spec_->layout == Layout::kNhwc) {
      uint8_t* to = out_ + width * channels * y * sizeof(float);
      for (size_t x = 0; x < width; ++x) {
        for (size_t c = 0; c < channels; ++c, to += sizeof(float))
          std::memcpy(to, &table_[c][*packed++], sizeof(float));
      }
      return;
    }
    for (size_t c = 0; c < channels; ++c) {
      uint8_t* to = out_ + (width * spec_->height * c + width * y) * sizeof(float);
      const float* const table = table_[c].data();
      for (size_t x = 0; x < width; ++x, to += sizeof(float)) {
        std::memcpy(to, &table[packed[x * channels + c]], sizeof(float));
      }
    }
  }

  const ImageSpec* spec_ = nullptr;
  uint8_t* out_ = nullptr;
  uint8_t* pixels_ = nullptr;
  std::vector<uint8_t> packed_;
  Tables table_{};
  std::array<float, 3> table_mean_{};
  std::array<float, 3> table_std_{};  // zeros: no table was built yet, as no spec has them
};

}  // namespace

absl::Status ImageSpec::Check() const {
  if (height < 1 || width < 1 || height > kMaxOutputSide || width > kMaxOutputSide) {
    return Invalid(fmt::format("{} x {} pixels; each side must be 1 to {}", width, height, kMaxOutputSide));
  }
  if (numbers && (channels != 1 || dtype != DType::kU8 || interpolation != Interpolation::kNearest)) {
    return Invalid("a map of numbers has one channel, u8 pixels and the nearest interpolation");
  }
  if (channels != 1 && channels != 3) return Invalid(fmt::format("{} channels; must be 3 (RGB) or 1 (grey)", channels));
  if (!(crop_scale[0] > 0 && crop_scale[0] <= crop_scale[1] && crop_scale[1] <= 1)) {
    return Invalid(fmt::format("crop scale {} to {}; must rise within (0, 1]", crop_scale[0], crop_scale[1]));
  }
  if (!(crop_ratio[0] > 0 && crop_ratio[0] <= crop_ratio[1] && std::isfinite(crop_ratio[1] / crop_ratio[0]))) {
    return Invalid(fmt::format("crop ratio {} to {}; must rise and be above 0", crop_ratio[0], crop_ratio[1]));
  }
  if (!(flip_probability >= 0 && flip_probability <= 1)) {
    return Invalid(fmt::format("flip probability {}; must be 0 to 1", flip_probability));
  }
  for (int c = 0; c < channels; ++c) {
    if (!std::isfinite(mean[c])) return Invalid(fmt::format("mean {} of channel {}; must be finite", mean[c], c));
    if (!(std[c] > 0) || !std::isfinite(std[c])) {
      return Invalid(fmt::format("standard deviation {} of channel {}; must be above 0", std[c], c));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ImageSize> ReadImageSize(ByteSpan encoded) {
  ASSIGN_OR_RETURN(const Format format, Sniff(encoded));
  return (format == Format::kJpeg ? MakeJpegReader() : MakePngReader())->Open(encoded);
}

absl::StatusOr<Frame> ReadFrame(ByteSpan encoded, const ImageSpec& spec, uint64_t key) {
  RETURN_IF_ERROR(spec.Check());
  ASSIGN_OR_RETURN(ImageSize size, ReadImageSize(encoded));
  if (spec.exif_orientation && AsText(encoded).starts_with("\xff\xd8\xff"sv))
    size = Turned(size, OrientationOf(encoded));
  return Frame{size, spec.augment ? RandomCrop(size, spec, key) : CenterCrop(size, spec)};
}

namespace {

PixelForm FormOf(const ImageSpec& spec) {
  if (spec.numbers) return PixelForm::kNumbers;
  return spec.channels == 3 ? PixelForm::kRgbx : PixelForm::kGrey;
}

}  // namespace

struct ImageDecoder::Impl {
  Impl(ImageMemory* granter, JpegReading reading) : memory(granter), jpeg(MakeJpegReader(reading)) {}
  absl::Status Decode(ByteSpan encoded, const ImageSpec& spec, uint64_t key, const Frame* leader, MutableByteSpan out,
                      MutableByteSpan pixels);
  absl::Status DecodeRows(RowReader& reader, ByteSpan encoded, const ImageSpec& spec, uint64_t key,
                          const Frame* leader);
  absl::Status Resize(RowReader& reader, const ImageSpec& spec, const SourceCrop& crop);
  absl::Status ResizeRows(RowReader& reader, const ImageSpec& spec, int denominator);
  absl::Status PickNearest(RowReader& reader, const ImageSpec& spec, const SourceCrop& crop);
  absl::Status PickRows(RowReader& reader, const ImageSpec& spec);
  /// After the last row of what is needed.
  absl::Status Finish(RowReader& reader);
  /// Row `y` of what is cropped and resized.
  void Put(int y, const uint8_t* row) { orientation.turns() ? turner.Put(y, row) : output.Put(y, row); }
  /// Does the work with so many bytes beside the usual ones.
  absl::Status WithMemory(RowReader& reader, uint64_t bytes, absl::FunctionRef<absl::Status()> work);

  ImageMemory* const memory;
  const std::unique_ptr<RowReader> jpeg;
  std::unique_ptr<RowReader> png = MakePngReader();
  Frame frame;
  Orientation orientation;
  RowTurner turner;
  uint64_t turner_bytes = 0;
  ResizeAxis horizontal;
  ResizeAxis vertical;
  StreamResizer resizer;
  // Of the nearest pixels.
  std::vector<int> columns;
  std::vector<int> lines;
  std::vector<uint8_t> picked;
  Output output;
};

absl::Status ImageDecoder::Impl::Resize(RowReader& reader, const ImageSpec& spec, const SourceCrop& crop) {
  const int part = reader.can_shrink() ? ChooseDenominator(crop, spec) : 1;
  // A shrunk pixel covers part x part pixels, those at the right and bottom border perhaps fewer.
  const auto up = [part](int position) { return (position + part - 1) / part; };
  horizontal.Build(crop.x / part, crop.width / part, crop.left / part, up(crop.right), spec.width, crop.flip);
  vertical.Build(crop.y / part, crop.height / part, crop.top / part, up(crop.bottom), spec.height, false);
  const uint64_t bytes =
      reader.held_bytes() + turner_bytes + StreamResizer::RingBytes(horizontal, vertical, BytesOf(FormOf(spec)));
  return WithMemory(reader, bytes, [&] { return ResizeRows(reader, spec, part); });
}

absl::Status ImageDecoder::Impl::ResizeRows(RowReader& reader, const ImageSpec& spec, int denominator) {
  if (orientation.turns())
    turner.Start({.width = spec.width, .height = spec.height}, BytesOf(FormOf(spec)), orientation);
  RETURN_IF_ERROR(resizer.Start(horizontal, vertical, BytesOf(FormOf(spec))));
  const Region region{horizontal.begin(), vertical.begin(), horizontal.end(), vertical.end()};
  RETURN_IF_ERROR(reader.Start(region, denominator, FormOf(spec)));
  for (int row = region.top; row < region.bottom;) {
    ASSIGN_OR_RETURN(const RowBlock block, reader.Next());
    for (int i = 0; i < block.rows; ++i) {
      resizer.Push(block.first + block.stride * i, [this](int y, const uint8_t* pixels) { Put(y, pixels); });
    }
    row += block.rows;
  }
  return Finish(reader);
}

absl::Status ImageDecoder::Impl::PickNearest(RowReader& reader, const ImageSpec& spec, const SourceCrop& crop) {
  NearestPixels(crop.x, crop.width, crop.left, crop.right, spec.width, crop.flip, &columns);
  NearestPixels(crop.y, crop.height, crop.top, crop.bottom, spec.height, false, &lines);
  return WithMemory(reader, reader.held_bytes() + turner_bytes, [&] { return PickRows(reader, spec); });
}

absl::Status ImageDecoder::Impl::PickRows(RowReader& reader, const ImageSpec& spec) {
  const PixelForm form = FormOf(spec);
  if (orientation.turns()) turner.Start({.width = spec.width, .height = spec.height}, BytesOf(form), orientation);
  const auto bytes = static_cast<size_t>(BytesOf(form));
  if (picked.size() < columns.size() * bytes + kernels::kSlackBytes) {
    picked.resize(columns.size() * bytes + kernels::kSlackBytes);
  }
  const auto [left, right] = std::minmax_element(columns.begin(), columns.end());
  const Region region{*left, lines.front(), *right + 1, lines.back() + 1};
  RETURN_IF_ERROR(reader.Start(region, 1, form));
  size_t y = 0;  // the next line of the output
  for (int row = region.top; row < region.bottom;) {
    ASSIGN_OR_RETURN(const RowBlock block, reader.Next());
    for (int i = 0; i < block.rows; ++i, ++row) {
      if (y == lines.size() || lines[y] != row) continue;
      const uint8_t* const from = block.first + block.stride * i;
      for (size_t x = 0; x < columns.size(); ++x) {
        std::memcpy(picked.data() + x * bytes, from + static_cast<size_t>(columns[x] - region.left) * bytes, bytes);
      }
      for (; y < lines.size() && lines[y] == row; ++y) Put(static_cast<int>(y), picked.data());
    }
  }
  return Finish(reader);
}

absl::Status ImageDecoder::Impl::WithMemory(RowReader& reader, uint64_t bytes, absl::FunctionRef<absl::Status()> work) {
  if (bytes <= kScratchBytes) return work();
  if (memory != nullptr) RETURN_IF_ERROR(memory->Take(bytes));
  const auto give_back = absl::MakeCleanup([&] {
    reader.Close();
    resizer = StreamResizer();
    turner = RowTurner();
    if (memory != nullptr) memory->Return(bytes);
  });
  return work();
}

absl::Status ImageDecoder::Impl::DecodeRows(RowReader& reader, ByteSpan encoded, const ImageSpec& spec, uint64_t key,
                                            const Frame* leader) {
  ASSIGN_OR_RETURN(const ImageSize stored, reader.Open(encoded));
  orientation = spec.exif_orientation && &reader == jpeg.get() ? OrientationOf(encoded) : Orientation();
  const ImageSize size = Turned(stored, orientation);
  SourceCrop crop;
  if (leader == nullptr) {
    crop = spec.augment ? RandomCrop(size, spec, key) : CenterCrop(size, spec);
  } else {
    ASSIGN_OR_RETURN(crop, CropLike(size, *leader));
  }
  frame = {size, crop};
  const auto decode = [&](const ImageSpec& as_stored, const SourceCrop& from) {
    const bool nearest = spec.interpolation == Interpolation::kNearest;
    return nearest ? PickNearest(reader, as_stored, from) : Resize(reader, as_stored, from);
  };
  turner_bytes = 0;
  if (!orientation.turns()) return decode(spec, crop);
  // What is stored is cropped and resized, and only the few pixels that are left are turned.
  const ImageSize out = Turned({.width = spec.width, .height = spec.height}, orientation);
  ImageSpec as_stored = spec;
  as_stored.width = out.width;
  as_stored.height = out.height;
  const int pixel_bytes = BytesOf(FormOf(spec));
  turner_bytes =
      static_cast<uint64_t>(out.width) * static_cast<uint64_t>(out.height) * static_cast<uint64_t>(pixel_bytes);
  return decode(as_stored, StoredCrop(crop, stored, orientation));
}

absl::Status ImageDecoder::Impl::Finish(RowReader& reader) {
  RETURN_IF_ERROR(reader.Finish());
  if (!orientation.turns()) return absl::OkStatus();
  turner.Finish(frame.crop.flip, kernels::kSlackBytes, [this](int y, const uint8_t* row) { output.Put(y, row); });
  return absl::OkStatus();
}

absl::Status ImageDecoder::Impl::Decode(ByteSpan encoded, const ImageSpec& spec, uint64_t key, const Frame* leader,
                                        MutableByteSpan out, MutableByteSpan pixels) {
  RETURN_IF_ERROR(spec.Check());
  if (out.size() != spec.bytes())
    return Invalid(fmt::format("room for {} bytes; an image takes {}", out.size(), spec.bytes()));
  if (!pixels.empty() && pixels.size() != spec.pixels()) {
    return Invalid(fmt::format("room for {} pixel bytes; an image has {}", pixels.size(), spec.pixels()));
  }
  ASSIGN_OR_RETURN(const Format format, Sniff(encoded));
  output.Start(spec, out, pixels);
  RowReader& reader = format == Format::kJpeg ? *jpeg : *png;
  const absl::Status status = DecodeRows(reader, encoded, spec, key, leader);
  reader.Close();
  return status;
}

ImageDecoder::ImageDecoder(ImageMemory* memory, JpegReading reading) : impl_(std::make_unique<Impl>(memory, reading)) {}
ImageDecoder::~ImageDecoder() = default;

absl::Status ImageDecoder::Decode(ByteSpan encoded, const ImageSpec& spec, uint64_t key, MutableByteSpan out,
                                  MutableByteSpan pixels) {
  return impl_->Decode(encoded, spec, key, nullptr, out, pixels);
}

const Frame& ImageDecoder::frame() const {
  return impl_->frame;
}

absl::Status ImageDecoder::DecodeLike(ByteSpan encoded, const ImageSpec& spec, const Frame& leader, MutableByteSpan out,
                                      MutableByteSpan pixels) {
  const Frame kept = leader;  // may be that of this decoder
  return impl_->Decode(encoded, spec, 0, &kept, out, pixels);
}

}  // namespace millrace
