#pragma once

#include <memory>

#include "decode/row_reader.h"

namespace millrace {

/// PNG through libspng: every colour type and depth, interlaced too. As Pillow's convert("RGB") has it, transparency is
/// dropped (not blended) and gamma ignored; 16-bit samples keep their high byte. Checksums are verified, those of
/// ancillary chunks included.
std::unique_ptr<RowReader> MakePngReader();

}  // namespace millrace
