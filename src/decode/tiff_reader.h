#pragma once

#include <memory>

#include "decode/row_reader.h"

namespace millrace {

/// TIFF through libtiff: the first picture of the file, in strips or tiles, uncompressed or by LZW, Deflate, PackBits,
/// JPEG, CCITT's methods for fax or zstd. (LZMA's memory cannot be bounded; it and rarer methods are refused by name.)
/// Transparency is dropped; 16-bit samples keep their high byte. The numbers are the indices of a palette, or grey
/// samples of at most 8 bits.
std::unique_ptr<RowReader> MakeTiffReader();

}  // namespace millrace
