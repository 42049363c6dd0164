#pragma once

#include <memory>

#include "decode/row_reader.h"

/// These are the readers of the formats, each in the .cc file of its name. A new format also changes SniffImageFormat
/// and MakeReader (image.cc), image_metadata.cc, reencode.cc and IsImageField (shard/sample_name.cc).

namespace millrace {

/// BMP of 1 to 32 bits without compression (no library of Debian reads it): palettes, bit fields, either order of rows;
/// transparency is dropped. Rows are read where they are. The numbers are the indices of the palette.
std::unique_ptr<RowReader> MakeBmpReader();

/// GIF through giflib: the first picture of the file, on its canvas, as Pillow opens it; transparency is dropped. The
/// numbers are the indices of the palette. The whole picture is held.
std::unique_ptr<RowReader> MakeGifReader();

/// Reads JPEG through libjpeg-turbo: baseline, extended and progressive; grey, YCbCr, RGB, CMYK and YCCK (inverted, as
/// Adobe writes them and Pillow reads them). EXIF orientation (orientation.h) and colour profiles are not applied. Only
/// the columns and rows of the region are transformed; the rest is entropy-decoded, which a JPEG without tiles cannot
/// avoid. The pixels do not depend on `reading`.
std::unique_ptr<RowReader> MakeJpegReader(JpegReading reading = JpegReading::kNeeded);

/// Reads PNG through libspng: every colour type and depth, interlaced too. As Pillow's convert("RGB") has it,
/// transparency is dropped (not blended) and gamma ignored; 16-bit samples keep their high byte. As Pillow does,
/// checksums of chunks before the pixels are verified, and the bytes after the pixels are not read.
std::unique_ptr<RowReader> MakePngReader();

/// Reads TIFF through libtiff: the first picture of the file, in strips or tiles. It is uncompressed or compressed by
/// LZW, Deflate, PackBits, JPEG, CCITT's methods for fax or zstd. (LZMA's memory cannot be bounded; it and rarer
/// methods are refused by name.) Transparency is dropped; 16-bit samples keep their high byte. The numbers are the
/// indices of a palette, or grey samples of at most 8 bits.
std::unique_ptr<RowReader> MakeTiffReader();

/// WebP through libwebp: lossy and lossless; transparency is dropped. An animation shows its first frame, on its
/// canvas. The whole image is held.
std::unique_ptr<RowReader> MakeWebpReader();

}  // namespace millrace
