#pragma once

#include <memory>

#include "decode/row_reader.h"

namespace millrace {

/// WebP through libwebp: lossy and lossless; transparency is dropped. Animations are refused. The whole image is held.
std::unique_ptr<RowReader> MakeWebpReader();

}  // namespace millrace
