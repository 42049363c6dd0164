#include "decode/orientation.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "decode/image_format.h"
#include "decode/image_metadata.h"

namespace millrace {

namespace {

// Reads numbers of a TIFF file in either order of bytes; 0 beyond its end.
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
  uint64_t Get8(uint64_t at) const {
    const uint64_t first = Get(at, 4);
    const uint64_t second = Get(at + 4, 4);
    return big_ ? first << 32 | second : second << 32 | first;
  }

 private:
  const ByteSpan tiff_;
  const bool big_;
};

// These are the types of the numbers that an orientation may have. A signed one is that much above the one without a
// sign.
constexpr uint32_t kTiffByte = 1;
constexpr uint32_t kTiffShort = 3;
constexpr uint32_t kTiffLong = 4;
constexpr uint32_t kTiffRational = 5;
constexpr uint32_t kSigned = 5;
constexpr uint32_t kTiffFloat = 11;
constexpr uint32_t kTiffDouble = 12;
constexpr uint32_t kTiffDirectory = 13;
constexpr uint32_t kTiffLong8 = 16;

// These are the bytes of a number of each type of TIFF; 0 for types that do not exist.
constexpr uint8_t kTypeBytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};

// This is a tag of the first directory: `at` is where its values are.
struct TiffEntry {
  uint32_t type = 0;
  uint32_t count = 0;
  uint64_t at = 0;
};

bool BeginsAsTiff(ByteSpan bytes) {
  return AsText(bytes).starts_with("II") || AsText(bytes).starts_with("MM");
}

// Returns the first such tag that has a value. As Pillow does, it reads up to the first tag that is cut off.
std::optional<TiffEntry> FindTag(ByteSpan tiff, uint32_t tag) {
  if (!BeginsAsTiff(tiff)) return std::nullopt;
  const TiffReader reader(tiff);
  const uint32_t magic = reader.Get(2, 2);
  if (magic != 42 && magic != 42 << 8) return std::nullopt;
  const uint64_t directory = reader.Get(4, 4);
  const uint32_t entries = reader.Get(directory, 2);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + 12 * i;
    if (at + 12 > tiff.size()) return std::nullopt;
    TiffEntry entry{.type = reader.Get(at + 2, 2), .count = reader.Get(at + 4, 4), .at = at + 8};
    if (entry.type >= std::size(kTypeBytes) || kTypeBytes[entry.type] == 0) continue;
    const uint64_t bytes = uint64_t{entry.count} * kTypeBytes[entry.type];
    if (bytes == 0 || bytes > tiff.size()) continue;
    if (bytes > 4) entry.at = reader.Get(at + 8, 4);
    if (entry.at + bytes > tiff.size()) return std::nullopt;
    if (reader.Get(at, 2) == tag) return entry;
  }
  return std::nullopt;
}

uint32_t WholeOf(double number) {
  constexpr double kMost = 8;
  return number >= 0 && number <= kMost && number == std::floor(number) ? static_cast<uint32_t>(number) : 0;
}

// Returns the tag Orientation of the first directory, 0 if it is not such a number; nullopt if there is none.
std::optional<uint32_t> OrientationTag(ByteSpan tiff) {
  constexpr uint32_t kOrientationTag = 0x0112;
  const TiffReader reader(tiff);
  const std::optional<TiffEntry> entry = FindTag(tiff, kOrientationTag);
  if (!entry) return std::nullopt;
  switch (entry->type) {
    case kTiffByte + kSigned:  // a byte without a sign is text to Pillow
      return reader.Get(entry->at, 1);
    case kTiffShort:
    case kTiffShort + kSigned:
      return reader.Get(entry->at, 2);
    case kTiffLong:
    case kTiffLong + kSigned:
    case kTiffDirectory:
      return reader.Get(entry->at, 4);
    case kTiffLong8:
      return reader.Get8(entry->at) <= UINT32_MAX ? static_cast<uint32_t>(reader.Get8(entry->at)) : 0;
    case kTiffFloat:
      return WholeOf(std::bit_cast<float>(reader.Get(entry->at, 4)));
    case kTiffDouble:
      return WholeOf(std::bit_cast<double>(reader.Get8(entry->at)));
    case kTiffRational:
    case kTiffRational + kSigned: {
      const uint32_t over = reader.Get(entry->at, 4);
      const uint32_t under = reader.Get(entry->at + 4, 4);
      return under != 0 && over % under == 0 ? over / under : 0;
    }
    default:
      return 0;
  }
}

// Returns the first orientation in XMP data; 0 if there is none.
uint32_t OrientationInXmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    const size_t between = rest.starts_with("=\"") ? 2 : rest.starts_with('>') ? 1 : 0;
    rest.remove_prefix(between);
    if (between > 0 && !rest.empty() && rest[0] >= '0' && rest[0] <= '9') return static_cast<uint32_t>(rest[0] - '0');
  }
  return 0;
}

uint32_t OrientationInXmpOfTiff(ByteSpan tiff) {
  constexpr uint32_t kXmpTag = 700;
  const std::optional<TiffEntry> entry = FindTag(tiff, kXmpTag);
  return entry ? OrientationInXmp(AsText(tiff.subspan(entry->at, entry->count))) : 0;
}

bool IsTiff(ByteSpan encoded) {
  const absl::StatusOr<ImageFormat> format = SniffImageFormat(encoded);
  return format.ok() && *format == ImageFormat::kTiff;
}

uint32_t OrientationNumber(ByteSpan encoded) {
  if (IsTiff(encoded)) {
    const std::optional<uint32_t> tag = OrientationTag(encoded);
    return tag ? *tag : OrientationInXmpOfTiff(encoded);
  }
  const ImageMetadata metadata = MetadataOf(encoded);
  // Pillow does not get as far as XMP data if the EXIF data are no TIFF file.
  if (!metadata.exif.empty() && !BeginsAsTiff(metadata.exif.bytes())) return 0;
  const std::optional<uint32_t> tag = OrientationTag(metadata.exif.bytes());
  return tag ? *tag : OrientationInXmp(AsText(metadata.xmp.bytes()));
}

}  // namespace

Orientation OrientationOf(ByteSpan encoded) {
  const uint32_t tag = OrientationNumber(encoded);
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
