#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace millrace {

/// Encodes RGB pixels (3 bytes each, row by row) as a baseline JPEG with 4:2:0 chroma and the standard Huffman tables,
/// as cameras and libjpeg do by default. `quality` is libjpeg's scale, 1 to 100, in finer steps. InvalidArgument if
/// the sizes do not match. Pure.
absl::StatusOr<std::string> EncodeJpeg(std::span<const uint8_t> rgb, int width, int height, double quality);

}  // namespace millrace
