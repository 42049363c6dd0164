#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// Says how images are stored again when a data set is packed.
struct ImageChange {
  int shorter_side = 0;     // resized to so many pixels if it has more; 0: keeps its size
  int quality = 90;         // of the JPEGs that are resized; 1 to 100
  bool jpeg_tiles = false;  // JPEGs get tiles (jpeg_tiler.h), resized or not

  bool empty() const { return shorter_side == 0 && !jpeg_tiles; }
  absl::Status Check() const;
};

/// ReencodeImage holds at most this, beside a few times the bytes of the image before and after.
inline constexpr uint64_t kReencodeBytes = uint64_t{320} << 20;

/// The image as it is to be stored; nullopt if its bytes stay as they are.
///
/// Resizing is antialiased and never enlarges. A JPEG becomes a baseline JPEG (4:2:0, or grey) that keeps its EXIF data
/// and, unless it was CMYK, its colour profile. Its pixels are not turned, so that the EXIF orientation still holds.
/// The pixels of a TIFF are turned, since the format that it becomes says no orientation. A PNG in RGB or RGBA becomes
/// a PNG in RGB of 8 bits without metadata. PNGs and TIFFs in grey or with a palette are not resized, because they may
/// be masks, whose numbers cannot be mixed. A WebP stays one, lossless if it was; other TIFFs, GIFs and BMPs become
/// PNGs. An animation becomes its first picture.
///
/// Errors are as in ImageDecoder::Decode, for images that would be changed and for all JPEGs. A function of its
/// arguments alone.
absl::StatusOr<std::optional<std::string>> ReencodeImage(ByteSpan encoded, const ImageChange& change);

}  // namespace millrace
