#pragma once

#include <memory>

#include "decode/row_reader.h"

namespace millrace {

/// GIF through giflib: the first picture of the file, on its canvas, as Pillow opens it; transparency is dropped. The
/// numbers are the indices of the palette. The whole picture is held.
std::unique_ptr<RowReader> MakeGifReader();

}  // namespace millrace
