#pragma once

#include <memory>

#include "decode/row_reader.h"

namespace millrace {

/// BMP of 1 to 32 bits without compression (no library of Debian reads it): palettes, bit fields, either order of rows;
/// transparency is dropped. Rows are read where they lie. The numbers are the indices of the palette.
std::unique_ptr<RowReader> MakeBmpReader();

}  // namespace millrace
