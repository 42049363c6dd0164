#include "decode/orientation.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "decode/image_format.h"
#include "decode/jpeg_segments.h"

namespace millrace {

namespace {

using std::string_view_literals::operator""sv;

// Numbers of a TIFF file in either order of bytes; 0 beyond its end.
class TiffReader {
 public:
  explicit TiffReader(ByteSpan tiff) : tiff_(tiff), big_(AsText(tiff).starts_with("MM")) {}

  uint32_t Get(uint64_t at, int bytes) const {
    if (at + static_cast<uint64_t>(bytes) > tiff_.size()) return 0;
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) {
      const auto byte = static_cast<uint32_t>(tiff_[at + static_cast<uint64_t>(big_ ? i : bytes - 1 - i)]);
      value = value << 8 | byte;
    }
    return value;
  }

 private:
  const ByteSpan tiff_;
  const bool big_;
};

// A tag of the first directory: `at` is where its value is, or the place of the value.
struct TiffEntry {
  uint32_t type = 0;
  uint32_t count = 0;
  uint64_t at = 0;
};

constexpr uint32_t kTiffShort = 3;
constexpr uint32_t kTiffLong = 4;

std::optional<TiffEntry> FindTag(const TiffReader& reader, uint32_t tag) {
  if (reader.Get(2, 2) != 42) return std::nullopt;
  const uint64_t directory = reader.Get(4, 4);
  const uint32_t entries = reader.Get(directory, 2);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + 12 * i;
    if (reader.Get(entry, 2) == tag) return TiffEntry{reader.Get(entry + 2, 2), reader.Get(entry + 4, 4), entry + 8};
  }
  return std::nullopt;
}

// The tag Orientation of the first directory, 0 if it is no number; nullopt if there is none.
std::optional<uint32_t> OrientationTag(ByteSpan tiff) {
  constexpr uint32_t kOrientationTag = 0x0112;
  const TiffReader reader(tiff);
  const std::optional<TiffEntry> entry = FindTag(reader, kOrientationTag);
  if (!entry) return std::nullopt;
  if (entry->type == kTiffLong) return reader.Get(entry->at, 4);
  return entry->type == kTiffShort ? reader.Get(entry->at, 2) : 0;
}

// The orientation in the XMP data of a TIFF; 0 if there is none.
uint32_t OrientationInXmp(ByteSpan tiff) {
  constexpr uint32_t kXmpTag = 700;
  const TiffReader reader(tiff);
  const std::optional<TiffEntry> entry = FindTag(reader, kXmpTag);
  if (!entry || entry->count <= 4) return 0;
  const uint64_t begin = reader.Get(entry->at, 4);
  if (begin > tiff.size() || entry->count > tiff.size() - begin) return 0;
  const std::string_view xmp = AsText(tiff.subspan(begin, entry->count));
  for (const std::string_view name : {"tiff:Orientation=\""sv, "tiff:Orientation>"sv}) {
    const size_t at = xmp.find(name);
    if (at == std::string_view::npos || at + name.size() >= xmp.size()) continue;
    const char digit = xmp[at + name.size()];
    if (digit >= '0' && digit <= '9') return static_cast<uint32_t>(digit - '0');
  }
  return 0;
}

constexpr std::string_view kExif = "Exif\0\0"sv;

ByteSpan WithoutExifHead(ByteSpan payload) {
  return AsText(payload).starts_with(kExif) ? payload.subspan(kExif.size()) : payload;
}

// The EXIF data of an image, which are a TIFF file; empty if there are none.
ByteSpan ExifOfJpeg(ByteSpan jpeg) {
  JpegSegments segments(jpeg);
  while (const std::optional<JpegSegment> segment = segments.Next()) {
    if (segment->marker == jpeg_marker::kApp1 && AsText(segment->payload).starts_with(kExif)) {
      return WithoutExifHead(segment->payload);
    }
  }
  return {};
}

/// How the chunks of a format are told.
struct ChunkFormat {
  size_t first;   // where the first one begins
  size_t name;    // where in a chunk its name is
  size_t length;  // and its length
  bool big_endian;
  size_t between;  // bytes behind a chunk
  bool even;       // chunks have an even number of bytes
  std::string_view exif;
};
constexpr ChunkFormat kPngChunks = {8, 4, 0, true, 4, false, "eXIf"};
constexpr ChunkFormat kWebpChunks = {12, 0, 4, false, 0, true, "EXIF"};

ByteSpan ExifOfChunks(ByteSpan file, const ChunkFormat& format) {
  constexpr size_t kChunkHead = 8;
  for (size_t at = format.first; at + kChunkHead <= file.size();) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) {
      length = length << 8 | static_cast<uint64_t>(file[at + format.length + (format.big_endian ? i : 3 - i)]);
    }
    if (length > file.size() - at - kChunkHead) return {};
    const ByteSpan payload = file.subspan(at + kChunkHead, length);
    if (AsText(file).substr(at + format.name, 4) == format.exif) return WithoutExifHead(payload);
    at += kChunkHead + length + format.between + (format.even ? length % 2 : 0);
  }
  return {};
}

bool IsTiff(ByteSpan encoded) {
  const absl::StatusOr<ImageFormat> format = SniffImageFormat(encoded);
  return format.ok() && *format == ImageFormat::kTiff;
}

ByteSpan ExifOf(ByteSpan encoded) {
  const absl::StatusOr<ImageFormat> format = SniffImageFormat(encoded);
  if (!format.ok()) return {};
  switch (*format) {
    case ImageFormat::kJpeg:
      return ExifOfJpeg(encoded);
    case ImageFormat::kPng:
      return ExifOfChunks(encoded, kPngChunks);
    case ImageFormat::kWebp:
      return ExifOfChunks(encoded, kWebpChunks);
    case ImageFormat::kTiff:
      return encoded;
    default:
      return {};
  }
}

}  // namespace

Orientation OrientationOf(ByteSpan encoded) {
  const std::optional<uint32_t> stored = OrientationTag(ExifOf(encoded));
  const uint32_t tag = stored ? *stored : IsTiff(encoded) ? OrientationInXmp(encoded) : 0;
  if (tag < 2 || tag > 8) return {};
  return {.transposed = tag >= 5,
          .mirrored_x = tag == 2 || tag == 3 || tag == 7 || tag == 8,
          .mirrored_y = tag == 3 || tag == 4 || tag == 6 || tag == 7};
}

Orientation OrientationToShow(ByteSpan encoded, bool by_exif) {
  return by_exif || IsTiff(encoded) ? OrientationOf(encoded) : Orientation();
}

ImageSize Turned(ImageSize size, const Orientation& orientation) {
  if (orientation.transposed) std::swap(size.width, size.height);
  return size;
}

SourceCrop StoredCrop(const SourceCrop& seen, ImageSize size, const Orientation& orientation) {
  SourceCrop crop = seen;
  crop.flip = false;
  crop.flip_vertical = false;
  if (orientation.transposed) {
    std::swap(crop.x, crop.y);
    std::swap(crop.width, crop.height);
    std::swap(crop.left, crop.top);
    std::swap(crop.right, crop.bottom);
  }
  if (orientation.mirrored_x) {
    crop.x = size.width - (crop.x + crop.width);
    crop.left = size.width - std::exchange(crop.right, size.width - crop.left);
  }
  if (orientation.mirrored_y) {
    crop.y = size.height - (crop.y + crop.height);
    crop.top = size.height - std::exchange(crop.bottom, size.height - crop.top);
  }
  return crop;
}

void RowTurner::Start(ImageSize stored, int pixel_bytes, const Orientation& orientation) {
  stored_ = stored;
  pixel_bytes_ = static_cast<size_t>(pixel_bytes);
  orientation_ = orientation;
  pixels_.resize(static_cast<size_t>(stored.width) * static_cast<size_t>(stored.height) * pixel_bytes_);
}

void RowTurner::Put(int y, const uint8_t* row) {
  const size_t bytes = static_cast<size_t>(stored_.width) * pixel_bytes_;
  std::memcpy(pixels_.data() + static_cast<size_t>(y) * bytes, row, bytes);
}

void RowTurner::Finish(bool flip, size_t slack, absl::FunctionRef<void(int y, const uint8_t* row)> each) {
  const ImageSize seen = Turned(stored_, orientation_);
  row_.resize(static_cast<size_t>(seen.width) * pixel_bytes_ + slack);
  for (int v = 0; v < seen.height; ++v) {
    for (int u = 0; u < seen.width; ++u) {
      const int from_u = flip ? seen.width - 1 - u : u;
      int x = orientation_.transposed ? v : from_u;
      int y = orientation_.transposed ? from_u : v;
      if (orientation_.mirrored_x) x = stored_.width - 1 - x;
      if (orientation_.mirrored_y) y = stored_.height - 1 - y;
      const size_t at = static_cast<size_t>(y) * static_cast<size_t>(stored_.width) + static_cast<size_t>(x);
      std::memcpy(row_.data() + static_cast<size_t>(u) * pixel_bytes_, pixels_.data() + at * pixel_bytes_,
                  pixel_bytes_);
    }
    each(v, row_.data());
  }
}

}  // namespace millrace
