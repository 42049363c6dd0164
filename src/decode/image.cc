#include "decode/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "decode/erasing.h"
#include "decode/geometry.h"
#include "decode/image_format.h"
#include "decode/image_readers.h"
#include "decode/orientation.h"
#include "decode/output.h"
#include "decode/pixel_transforms.h"
#include "decode/resample.h"
#include "decode/warp.h"

namespace millrace {
namespace {

constexpr int kMaxOutputSide = 16'384;
/// A transformed image needs this many bytes of memory for each of its bytes: its pixels, those before, and sums of a
/// blur.
constexpr uint64_t kCanvasBytes = 6;

std::unique_ptr<RowReader> MakeReader(ImageFormat format, JpegReading reading) {
  switch (format) {
    case ImageFormat::kJpeg:
      return MakeJpegReader(reading);
    case ImageFormat::kPng:
      return MakePngReader();
    case ImageFormat::kWebp:
      return MakeWebpReader();
    case ImageFormat::kTiff:
      return MakeTiffReader();
    case ImageFormat::kBmp:
      return MakeBmpReader();
    case ImageFormat::kGif:
      return MakeGifReader();
  }
  return nullptr;
}

absl::Status Invalid(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("image options: {}", what));
}

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
  RETURN_IF_ERROR(CheckTransforms(transforms));
  if (numbers && !transforms.empty()) {
    return Invalid("a map of numbers has no transforms of its own; let it follow an image, whose transforms it gets");
  }
  if (!transforms.empty() && transforms.back().kind == ImageTransform::Kind::kErasing &&
      transforms.back().numbers[4] != 0 && dtype != DType::kF32) {
    return Invalid("RandomErasing with random values needs f32 pixels");
  }
  for (int c = 0; c < channels; ++c) {
    if (!std::isfinite(mean[c])) return Invalid(fmt::format("mean {} of channel {}; must be finite", mean[c], c));
    if (!(std[c] > 0) || !std::isfinite(std[c])) {
      return Invalid(fmt::format("standard deviation {} of channel {}; must be above 0", std[c], c));
    }
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<ImageSize> ReadShownSize(ByteSpan encoded, bool by_exif) {
  ASSIGN_OR_RETURN(const ImageFormat format, SniffImageFormat(encoded));
  ASSIGN_OR_RETURN(const ImageSize size, MakeReader(format, JpegReading::kNeeded)->Open(encoded));
  return Turned(size, OrientationToShow(encoded, by_exif));
}

}  // namespace

absl::StatusOr<ImageSize> ReadImageSize(ByteSpan encoded) {
  return ReadShownSize(encoded, /*by_exif=*/false);
}

namespace {

absl::StatusOr<SourceCrop> CropOf(ImageSize size, const ImageSpec& spec, uint64_t key) {
  if (!spec.transforms.empty()) return TransformedCrop(size, spec, key);
  return spec.augment ? RandomCrop(size, spec, key) : CenterCrop(size, spec);
}

PixelForm FormOf(const ImageSpec& spec) {
  if (spec.numbers) return PixelForm::kNumbers;
  return spec.channels == 3 ? PixelForm::kRgbx : PixelForm::kGrey;
}

}  // namespace

absl::StatusOr<Frame> ReadFrame(ByteSpan encoded, const ImageSpec& spec, uint64_t key) {
  RETURN_IF_ERROR(spec.Check());
  ASSIGN_OR_RETURN(const ImageSize size, ReadShownSize(encoded, spec.exif_orientation));
  ASSIGN_OR_RETURN(const SourceCrop crop, CropOf(size, spec, key));
  return Frame{size, crop, {spec.width, spec.height}, {}};
}

struct ImageDecoder::Impl {
  Impl(ImageMemory* granter, JpegReading how) : memory(granter), reading(how) {}
  absl::Status Decode(ByteSpan encoded, const ImageSpec& spec, uint64_t image_key, const Frame* leader,
                      MutableByteSpan out, MutableByteSpan pixels);
  absl::Status DecodeRows(RowReader& reader, ByteSpan encoded, const ImageSpec& spec, const Frame* leader);
  absl::Status Resize(RowReader& reader, const ImageSpec& spec, const SourceCrop& crop);
  absl::Status ResizeRows(RowReader& reader, const ImageSpec& spec, int denominator);
  /// Returns whether the resize has fewer output pixels than input pixels.
  bool Reduces() const {
    return int64_t{horizontal.end() - horizontal.begin()} * (vertical.end() - vertical.begin()) >
           int64_t{horizontal.outputs()} * vertical.outputs();
  }
  absl::Status PickNearest(RowReader& reader, const ImageSpec& spec, const SourceCrop& crop);
  absl::Status PickRows(RowReader& reader, const ImageSpec& spec);
  /// Call this before the first row; `spec` is of the image as it is stored.
  void StartOutput(const ImageSpec& spec);
  /// Call this after the last row that is needed.
  absl::Status Finish(RowReader& reader);
  /// Puts row `y` of the part that is cropped and resized.
  void Put(int y, const uint8_t* row) { orientation.turns() ? turner.Put(y, row) : PutSeen(y, row); }
  /// Puts a row of the image after it was turned.
  void PutSeen(int y, const uint8_t* row);
  /// All rows were put.
  void TransformAndOutput();
  /// Does the work with so many bytes beside the usual ones.
  absl::Status WithMemory(RowReader& reader, uint64_t bytes, absl::FunctionRef<absl::Status()> work);

  ImageMemory* const memory;
  const JpegReading reading;
  std::array<std::unique_ptr<RowReader>, 6> readers;  // by format; made when they are needed
  Frame frame;
  Orientation orientation;
  RowTurner turner;
  uint64_t warnings = 0;  // of the last image
  // These members are of the current image.
  const ImageSpec* wanted = nullptr;
  uint64_t key = 0;
  bool follows = false;       // another image
  bool collects = false;      // rows into `canvas`, because they are transformed
  uint64_t output_bytes = 0;  // that the turner and the canvas take
  Pixels canvas;
  Pixels canvas_scratch;
  ResizeAxis horizontal;
  ResizeAxis vertical;
  StreamResizer resizer;
  // These are the positions of the nearest pixels.
  std::vector<int> columns;
  std::vector<int> lines;
  std::vector<uint8_t> picked;
  ImageOutput output;
};

absl::Status ImageDecoder::Impl::Resize(RowReader& reader, const ImageSpec& spec, const SourceCrop& crop) {
  const int part = reader.can_shrink() && !spec.exact ? ChooseDenominator(crop, spec) : 1;
  // A shrunk pixel covers part x part pixels, those at the right and bottom border perhaps fewer.
  const auto up = [part](int position) { return (position + part - 1) / part; };
  const Interpolation filter = spec.interpolation;
  horizontal.Build(crop.x / part, crop.width / part, crop.left / part, up(crop.right), spec.width, crop.flip, filter);
  vertical.Build(crop.y / part, crop.height / part, crop.top / part, up(crop.bottom), spec.height, false, filter);
  const uint64_t bytes =
      reader.held_bytes() + output_bytes + StreamResizer::RingBytes(horizontal, vertical, BytesOf(FormOf(spec)));
  return WithMemory(reader, bytes, [&] { return ResizeRows(reader, spec, part); });
}

absl::Status ImageDecoder::Impl::ResizeRows(RowReader& reader, const ImageSpec& spec, int denominator) {
  StartOutput(spec);
  if (!spec.exact && spec.interpolation == Interpolation::kBilinear && FormOf(spec) == PixelForm::kRgbx && Reduces()) {
    const auto put = [this](int y, const uint8_t* row) { Put(y, row); };
    ASSIGN_OR_RETURN(const bool resized, reader.Resize(horizontal, vertical, denominator, put));
    if (resized) return Finish(reader);
  }
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
  return WithMemory(reader, reader.held_bytes() + output_bytes, [&] { return PickRows(reader, spec); });
}

absl::Status ImageDecoder::Impl::PickRows(RowReader& reader, const ImageSpec& spec) {
  const PixelForm form = FormOf(spec);
  StartOutput(spec);
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
    canvas = Pixels();
    canvas_scratch = Pixels();
    if (memory != nullptr) memory->Return(bytes);
  });
  return work();
}

void ImageDecoder::Impl::StartOutput(const ImageSpec& spec) {
  if (orientation.turns())
    turner.Start({.width = spec.width, .height = spec.height}, BytesOf(FormOf(spec)), orientation);
  if (collects) canvas.Resize(wanted->width, wanted->height, wanted->channels);
}

void ImageDecoder::Impl::PutSeen(int y, const uint8_t* row) {
  if (frame.crop.flip_vertical) y = wanted->height - 1 - y;
  if (!collects) {
    output.Put(y, row);
  } else if (wanted->channels == 3) {
    kernels::PackRgb(row, static_cast<size_t>(wanted->width), canvas.row(y));
  } else {
    std::memcpy(canvas.row(y), row, canvas.row_bytes());
  }
}

void ImageDecoder::Impl::TransformAndOutput() {
  if (collects && !follows) TransformPixels(wanted->transforms, key, &canvas, &canvas_scratch, &frame.warps);
  if (collects && follows) {
    for (const Warp& each : frame.warps) {
      Warp warp = Scaled(each, frame.output, {canvas.width, canvas.height});
      if (wanted->interpolation == Interpolation::kNearest) warp.bilinear = false;
      WarpPixels(warp, {}, &canvas, &canvas_scratch);
    }
  }
  if (collects) {
    for (int y = 0; y < canvas.height; ++y) output.PutPacked(y, canvas.row(y));
  }
  if (follows || wanted->transforms.empty() || wanted->transforms.back().kind != ImageTransform::Kind::kErasing) return;
  const size_t place = wanted->transforms.size() - 1;
  const ImageTransform& erasing = wanted->transforms[place];
  const ImageSize size{wanted->width, wanted->height};
  const std::optional<ErasedPart> part = DrawErasing(erasing, key, place, size);
  if (part) output.Erase(*part, erasing, TransformKey(TransformKey(key, place), place));
}

absl::Status ImageDecoder::Impl::DecodeRows(RowReader& reader, ByteSpan encoded, const ImageSpec& spec,
                                            const Frame* leader) {
  ASSIGN_OR_RETURN(const ImageSize stored, reader.Open(encoded));
  orientation = OrientationToShow(encoded, spec.exif_orientation);
  const ImageSize size = Turned(stored, orientation);
  SourceCrop crop;
  if (leader != nullptr) {
    ASSIGN_OR_RETURN(crop, CropLike(size, *leader));
  } else {
    ASSIGN_OR_RETURN(crop, CropOf(size, spec, key));
  }
  frame = {size, crop, {spec.width, spec.height}, {}};
  if (leader != nullptr) {
    frame.output = leader->output;
    frame.warps = leader->warps;
  }
  const size_t parts = CountPartTransforms(spec.transforms);
  const bool transforms_pixels =
      parts < spec.transforms.size() && spec.transforms[parts].kind != ImageTransform::Kind::kErasing;
  collects = follows ? !frame.warps.empty() : transforms_pixels;
  const auto decode = [&](const ImageSpec& as_stored, const SourceCrop& from) {
    const bool nearest = spec.interpolation == Interpolation::kNearest;
    return nearest ? PickNearest(reader, as_stored, from) : Resize(reader, as_stored, from);
  };
  output_bytes = collects ? kCanvasBytes * spec.pixels() : 0;
  if (!orientation.turns()) return decode(spec, crop);
  // The stored pixels are cropped and resized, and only the few that are left are turned.
  const ImageSize out = Turned({.width = spec.width, .height = spec.height}, orientation);
  ImageSpec as_stored = spec;
  as_stored.width = out.width;
  as_stored.height = out.height;
  const int pixel_bytes = BytesOf(FormOf(spec));
  output_bytes +=
      static_cast<uint64_t>(out.width) * static_cast<uint64_t>(out.height) * static_cast<uint64_t>(pixel_bytes);
  return decode(as_stored, StoredCrop(crop, stored, orientation));
}

absl::Status ImageDecoder::Impl::Finish(RowReader& reader) {
  RETURN_IF_ERROR(reader.Finish());
  if (orientation.turns()) {
    turner.Finish(frame.crop.flip, kernels::kSlackBytes, [this](int y, const uint8_t* row) { PutSeen(y, row); });
  }
  TransformAndOutput();
  return absl::OkStatus();
}

absl::Status ImageDecoder::Impl::Decode(ByteSpan encoded, const ImageSpec& spec, uint64_t image_key,
                                        const Frame* leader, MutableByteSpan out, MutableByteSpan pixels) {
  RETURN_IF_ERROR(spec.Check());
  if (out.size() != spec.bytes())
    return Invalid(fmt::format("room for {} bytes; an image takes {}", out.size(), spec.bytes()));
  if (!pixels.empty() && pixels.size() != spec.pixels()) {
    return Invalid(fmt::format("room for {} pixel bytes; an image has {}", pixels.size(), spec.pixels()));
  }
  ASSIGN_OR_RETURN(const ImageFormat format, SniffImageFormat(encoded));
  output.Start(spec, out, pixels);
  wanted = &spec;
  key = image_key;
  follows = leader != nullptr;
  std::unique_ptr<RowReader>& chosen = readers[static_cast<size_t>(format)];
  if (chosen == nullptr) chosen = MakeReader(format, reading);
  RowReader& reader = *chosen;
  absl::Status status = DecodeRows(reader, encoded, spec, leader);
  if (reader.MustReadAgain(status)) status = DecodeRows(reader, encoded, spec, leader);
  warnings = reader.warnings();
  reader.Close();
  return status;
}

ImageDecoder::ImageDecoder(ImageMemory* memory, JpegReading reading) : impl_(std::make_unique<Impl>(memory, reading)) {}
ImageDecoder::~ImageDecoder() = default;

absl::Status ImageDecoder::Decode(ByteSpan encoded, const ImageSpec& spec, uint64_t key, MutableByteSpan out,
                                  MutableByteSpan pixels) {
  return impl_->Decode(encoded, spec, key, nullptr, out, pixels);
}

uint64_t ImageDecoder::warnings() const {
  return impl_->warnings;
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
