#pragma once

#include <memory>

#include "decode/row_reader.h"

namespace millrace {

/// JPEG through libjpeg-turbo: baseline, extended and progressive; grey, YCbCr, RGB, CMYK and YCCK (inverted, as Adobe
/// writes them and Pillow reads them). EXIF orientation (orientation.h) and colour profiles are not applied. Only the
/// columns and rows of the region are transformed; the rest is entropy-decoded, which a JPEG without tiles cannot
/// avoid. The pixels do not depend on `reading`.
std::unique_ptr<RowReader> MakeJpegReader(JpegReading reading = JpegReading::kNeeded);

}  // namespace millrace
