#include "decode/reencode.h"

#include <fmt/format.h>
#include <webp/decode.h>
#include <webp/encode.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "base/waiting_budget.h"
#include "decode/decode_memory.h"
#include "decode/image.h"
#include "decode/image_format.h"
#include "decode/image_metadata.h"
#include "decode/image_readers.h"
#include "decode/jpeg_encoder.h"
#include "decode/jpeg_segments.h"
#include "decode/jpeg_tiler.h"
#include "decode/orientation.h"
#include "decode/png_writer.h"
#include "decode/resample.h"
#include "decode/resample_kernels.h"
#include "decode/row_reader.h"

namespace millrace {
namespace {

using std::string_view_literals::operator""sv;

/// An image that must be held may need at most this: packing has no budget to ask, and sets kReencodeBytes aside.
constexpr uint64_t kCoefficientBytes = uint64_t{256} << 20;

constexpr size_t kEndOfPngHeader = 33;  // the signature and IHDR

bool IsJpeg(ByteSpan encoded) {
  return AsText(encoded).starts_with("\xff\xd8\xff"sv);
}
bool IsPng(ByteSpan encoded) {
  return AsText(encoded).starts_with("\x89PNG\r\n\x1a\n"sv);
}

// Returns whether the PNG is RGB or RGBA, by its header.
bool IsTrueColour(ByteSpan png) {
  constexpr size_t kColourType = 25;
  if (png.size() <= kColourType) return false;
  const auto type = static_cast<uint8_t>(png[kColourType]);
  return type == 2 || type == 6;
}

/// Holds the parts of a JPEG's head that are kept, and how many components it has (0: the head does not say).
struct JpegHead {
  std::vector<JpegSegment> kept;
  int components = 0;
};

JpegHead ReadHead(ByteSpan encoded) {
  constexpr size_t kComponentsAt = 5;
  JpegHead head;
  JpegSegments segments(encoded);
  while (const auto segment = segments.Next()) {
    const uint8_t marker = segment->marker;
    const bool is_frame = marker >= jpeg_marker::kSof0 && marker <= 0xCF && marker != jpeg_marker::kDht &&
                          marker != 0xC8 && marker != 0xCC;  // a reserved one, and arithmetic coding's tables
    if (is_frame && segment->payload.size() > kComponentsAt) {
      head.components = static_cast<int>(segment->payload[kComponentsAt]);
    }
    // The places of further pictures (MPF) are those of the file as it was.
    const bool is_places = marker == jpeg_marker::kApp2 && AsText(segment->payload).starts_with("MPF\0"sv);
    if ((marker == jpeg_marker::kApp1 || marker == jpeg_marker::kApp2) && !is_places) head.kept.push_back(*segment);
  }
  // The profile is of another colour space than the pixels will have.
  if (head.components == 4) {
    std::erase_if(head.kept, [](const JpegSegment& segment) { return segment.marker == jpeg_marker::kApp2; });
  }
  return head;
}

/// Holds the sizes of one resize.
struct Scaling {
  ImageSize to;
  int denominator = 1;  // by which the reader shrinks first
};

Scaling ScalingTo(ImageSize from, int shorter_side, bool can_shrink) {
  const int shorter = std::min(from.width, from.height);
  const auto scaled = [&](int side) {
    return static_cast<int>((int64_t{side} * shorter_side + shorter / 2) / shorter);
  };
  Scaling scaling{.to = {.width = scaled(from.width), .height = scaled(from.height)}};
  // Twice the size is left to the filter, which is better than the codec's.
  for (const int denominator : {8, 4, 2}) {
    if (can_shrink && shorter >= int64_t{2} * denominator * shorter_side) {
      scaling.denominator = denominator;
      break;
    }
  }
  return scaling;
}

// Puts each row of the resized image.
template <typename Put>
absl::Status Resize(RowReader& reader, ImageSize from, const Scaling& scaling, PixelForm form, Put put) {
  const int part = scaling.denominator;
  const auto up = [part](int side) { return (side + part - 1) / part; };
  ResizeAxis horizontal;
  ResizeAxis vertical;
  horizontal.Build(0, static_cast<double>(from.width) / part, 0, up(from.width), scaling.to.width, false);
  vertical.Build(0, static_cast<double>(from.height) / part, 0, up(from.height), scaling.to.height, false);
  StreamResizer resizer;
  RETURN_IF_ERROR(resizer.Start(horizontal, vertical, BytesOf(form)));
  const Region region{horizontal.begin(), vertical.begin(), horizontal.end(), vertical.end()};
  RETURN_IF_ERROR(reader.Start(region, part, form));
  absl::Status status;
  for (int row = region.top; row < region.bottom;) {
    ASSIGN_OR_RETURN(const RowBlock block, reader.Next());
    for (int i = 0; i < block.rows; ++i) {
      resizer.Push(block.first + block.stride * i, [&](int, const uint8_t* pixels) {
        if (status.ok()) status = put(pixels);
      });
    }
    RETURN_IF_ERROR(status);
    row += block.rows;
  }
  return reader.Finish();
}

absl::StatusOr<std::optional<std::string>> ResizeJpegBy(RowReader& reader, ByteSpan encoded,
                                                        const ImageChange& change) {
  ASSIGN_OR_RETURN(const ImageSize from, reader.Open(encoded));
  if (std::min(from.width, from.height) <= change.shorter_side) return std::nullopt;
  const Scaling scaling = ScalingTo(from, change.shorter_side, reader.can_shrink());
  const JpegHead head = ReadHead(encoded);
  const bool grey = head.components == 1;
  JpegWriter writer;
  RETURN_IF_ERROR(writer.Start(scaling.to.width, scaling.to.height, grey ? 1 : 4, change.quality, head.kept));
  RETURN_IF_ERROR(Resize(reader, from, scaling, grey ? PixelForm::kGrey : PixelForm::kRgbx,
                         [&](const uint8_t* row) { return writer.Put(row); }));
  return writer.Finish();
}

absl::StatusOr<std::optional<std::string>> ResizeJpeg(ByteSpan encoded, const ImageChange& change) {
  const std::unique_ptr<RowReader> reader = MakeJpegReader(JpegReading::kAll);
  absl::StatusOr<std::optional<std::string>> resized = ResizeJpegBy(*reader, encoded, change);
  return reader->MustReadAgain(resized.status()) ? ResizeJpegBy(*reader, encoded, change) : std::move(resized);
}

absl::StatusOr<std::optional<std::string>> ResizePng(ByteSpan encoded, const ImageChange& change) {
  if (!IsTrueColour(encoded)) return std::nullopt;
  const std::unique_ptr<RowReader> reader = MakePngReader();
  ASSIGN_OR_RETURN(const ImageSize from, reader->Open(encoded));
  if (std::min(from.width, from.height) <= change.shorter_side) return std::nullopt;
  if (reader->held_bytes() > kCoefficientBytes) {
    return absl::InvalidArgumentError("cannot resize this interlaced PNG: it is too large to be held in memory");
  }
  const Scaling scaling = ScalingTo(from, change.shorter_side, reader->can_shrink());
  PngWriter writer;
  RETURN_IF_ERROR(writer.Start(scaling.to.width, scaling.to.height));
  RETURN_IF_ERROR(
      Resize(*reader, from, scaling, PixelForm::kRgbx, [&](const uint8_t* row) { return writer.Put(row); }));
  ASSIGN_OR_RETURN(std::string png, writer.Finish());
  return png.insert(kEndOfPngHeader, ShownChunksOfPng(encoded));
}

/// Holds RGB pixels of an image that is encoded as a whole.
struct WholeImage {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;

  void Put(const uint8_t* row) {
    for (int x = 0; x < width; ++x) rgb.insert(rgb.end(), row + 4 * x, row + 4 * x + 3);
  }
};

absl::StatusOr<std::string> EncodeWebp(const WholeImage& image, bool lossless, int quality) {
  uint8_t* bytes = nullptr;
  const int stride = 3 * image.width;
  const size_t size = lossless ? WebPEncodeLosslessRGB(image.rgb.data(), image.width, image.height, stride, &bytes)
                               : WebPEncodeRGB(image.rgb.data(), image.width, image.height, stride,
                                               static_cast<float>(quality), &bytes);
  if (size == 0) return absl::ResourceExhaustedError("a WebP could not be encoded: too little memory, or too large");
  std::string encoded(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return encoded;
}

absl::StatusOr<std::optional<std::string>> ResizeWebp(ByteSpan encoded, const ImageChange& change) {
  const std::unique_ptr<RowReader> reader = MakeWebpReader();
  ASSIGN_OR_RETURN(const ImageSize from, reader->Open(encoded));
  if (std::min(from.width, from.height) <= change.shorter_side) return std::nullopt;
  if (reader->held_bytes() > kCoefficientBytes)
    return absl::InvalidArgumentError("cannot resize this WebP: it is too large to be held in memory");
  WebPBitstreamFeatures features;
  const bool lossless =
      WebPGetFeatures(reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size(), &features) == VP8_STATUS_OK &&
      features.format == 2;
  const Scaling scaling = ScalingTo(from, change.shorter_side, reader->can_shrink());
  WholeImage image{.width = scaling.to.width, .height = scaling.to.height, .rgb = {}};
  RETURN_IF_ERROR(Resize(*reader, from, scaling, PixelForm::kRgbx, [&](const uint8_t* row) {
    image.Put(row);
    return absl::OkStatus();
  }));
  ASSIGN_OR_RETURN(const std::string webp, EncodeWebp(image, lossless, change.quality));
  return WithMetadataOfWebp(webp, encoded, static_cast<uint32_t>(image.width), static_cast<uint32_t>(image.height));
}

std::unique_ptr<RowReader> MakeOtherReader(ImageFormat format) {
  if (format == ImageFormat::kGif) return MakeGifReader();
  return format == ImageFormat::kTiff ? MakeTiffReader() : MakeBmpReader();
}

// Reads the whole image, so that one that stays as it is has been judged, too.
absl::Status Judge(RowReader& reader, ImageSize size) {
  const Region all{.left = 0, .top = 0, .right = size.width, .bottom = size.height};
  if (const absl::Status started = reader.Start(all, 1, PixelForm::kRgbx); !started.ok()) {
    return absl::IsDataLoss(started) ? started : absl::OkStatus();  // numbers that are no colours
  }
  for (int row = 0; row < size.height;) {
    ASSIGN_OR_RETURN(const RowBlock block, reader.Next());
    row += block.rows;
  }
  return absl::OkStatus();
}

// Resizes GIF, TIFF and BMP, which become PNGs. TIFFs and BMPs that may be masks or measurements stay as they are.
absl::StatusOr<std::optional<std::string>> ResizeToPng(ByteSpan encoded, ImageFormat format,
                                                       const ImageChange& change) {
  const std::unique_ptr<RowReader> reader = MakeOtherReader(format);
  ASSIGN_OR_RETURN(const ImageSize from, reader->Open(encoded));
  if (std::min(from.width, from.height) <= change.shorter_side) return std::nullopt;
  if (reader->held_bytes() > kCoefficientBytes)
    return absl::InvalidArgumentError("cannot resize this image: it is too large to be held in memory");
  if (reader->may_be_numbers()) {
    RETURN_IF_ERROR(Judge(*reader, from));
    return std::nullopt;
  }
  const Scaling scaling = ScalingTo(from, change.shorter_side, reader->can_shrink());
  // A PNG is shown as it is stored, a TIFF is turned.
  const Orientation orientation = OrientationToShow(encoded, /*by_exif=*/false);
  const ImageSize seen = Turned(scaling.to, orientation);
  PngWriter writer;
  RETURN_IF_ERROR(writer.Start(seen.width, seen.height));
  RowTurner turner;
  if (orientation.turns()) turner.Start(scaling.to, BytesOf(PixelForm::kRgbx), orientation);
  int stored_row = 0;
  RETURN_IF_ERROR(Resize(*reader, from, scaling, PixelForm::kRgbx, [&](const uint8_t* row) -> absl::Status {
    if (!orientation.turns()) return writer.Put(row);
    turner.Put(stored_row++, row);
    return absl::OkStatus();
  }));
  absl::Status status;
  if (orientation.turns()) {
    turner.Finish(/*flip=*/false, kernels::kSlackBytes, [&](int, const uint8_t* row) {
      if (status.ok()) status = writer.Put(row);
    });
  }
  RETURN_IF_ERROR(status);
  return writer.Finish();
}

// Returns OK if all of the image can be decoded.
absl::Status CheckWhole(ByteSpan encoded) {
  const ImageSpec spec{.height = 32, .width = 32};
  std::vector<std::byte> pixels(spec.bytes());
  WaitingBudget own(kCoefficientBytes);
  DecodeMemory memory(own, kCoefficientBytes);
  return ImageDecoder(&memory, JpegReading::kAll).Decode(encoded, spec, 0, pixels);
}

}  // namespace

absl::Status ImageChange::Check() const {
  if (shorter_side < 0 || shorter_side > kMaxImageSide) {
    return absl::InvalidArgumentError(fmt::format(
        "images cannot be resized to {} pixels; the shorter side must have 1 to {}", shorter_side, kMaxImageSide));
  }
  if (quality < 1 || quality > 100) {
    return absl::InvalidArgumentError(fmt::format("the quality of JPEGs is 1 to 100, not {}", quality));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> ReencodeImage(ByteSpan encoded, const ImageChange& change) {
  RETURN_IF_ERROR(change.Check());
  std::optional<std::string> stored;
  if (change.shorter_side > 0) {
    if (IsJpeg(encoded)) {
      ASSIGN_OR_RETURN(stored, ResizeJpeg(encoded, change));
    } else if (IsPng(encoded)) {
      ASSIGN_OR_RETURN(stored, ResizePng(encoded, change));
    } else {
      ASSIGN_OR_RETURN(const ImageFormat format, SniffImageFormat(encoded));
      if (format == ImageFormat::kWebp) return ResizeWebp(encoded, change);
      return ResizeToPng(encoded, format, change);
    }
  }
  if (!change.jpeg_tiles || !IsJpeg(encoded)) return stored;
  absl::StatusOr<std::optional<std::string>> tiled = TileJpeg(stored ? AsBytes(*stored) : encoded, kCoefficientBytes);
  // A file without an end marker may be shown all the same: then it stays as it is.
  if (absl::IsDataLoss(tiled.status())) {
    RETURN_IF_ERROR(CheckWhole(encoded));
    return stored;
  }
  RETURN_IF_ERROR(tiled.status());
  return *tiled ? *std::move(tiled) : std::move(stored);
}

}  // namespace millrace
