#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "decode/image_format.h"

/// These functions find the parts of image files that say how pixels are to be shown. Pure.

namespace millrace {

/// This is a chunk of a PNG or WebP file.
struct ImageChunk {
  std::string_view name;  // four characters
  ByteSpan payload;
};

/// Walks over the chunks of a PNG or WebP file. It ends before the first chunk that does not fit into the file.
/// Checksums are not looked at. The payloads are in `encoded`.
class ImageChunks {
 public:
  ImageChunks(ByteSpan encoded, ImageFormat format);

  std::optional<ImageChunk> Next();

 private:
  ByteSpan encoded_;
  bool png_;
  size_t at_;
};

/// Holds a block of metadata: a part of the file, or bytes that were inflated from one.
struct MetadataBlock {
  ByteSpan in_file;
  std::string inflated;

  bool empty() const { return in_file.empty() && inflated.empty(); }
  ByteSpan bytes() const { return inflated.empty() ? in_file : AsBytes(inflated); }
};

/// Holds the blocks that Pillow's exif_transpose looks at.
struct ImageMetadata {
  MetadataBlock exif;  // a TIFF file
  MetadataBlock xmp;   // XML
};

/// Returns the blocks of a JPEG, PNG or WebP; none for other formats. They are valid as long as `encoded`.
ImageMetadata MetadataOf(ByteSpan encoded);

/// Returns the chunks of a PNG that say how its pixels are to be shown, for a PNG in RGB: its profile and the like, and
/// those of MetadataOf. They are as the file has them, with new checksums, and may follow IHDR.
std::string ShownChunksOfPng(ByteSpan png);

/// Puts the profile and the metadata of one WebP (EXIF, XMP) into another one without metadata, as libwebp's simple
/// encoders write it.
std::string WithMetadataOfWebp(std::string_view simple, ByteSpan from, uint32_t width, uint32_t height);

}  // namespace millrace
