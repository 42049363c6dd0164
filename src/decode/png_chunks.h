#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// Returns a PNG file that spng reads with the verdict of Pillow. Chunks of pixels that reach beyond the file end with
/// it, and their wrong checksums are replaced. Before the pixels, unknown critical chunks are left out, and palettes
/// have whole entries, as many as the depth has numbers. Returns nullopt if the file can be read as it is. Returns
/// DataLoss if Pillow calls a chunk before the pixels damaged; InvalidArgument for files of Xcode. Pure.
absl::StatusOr<std::optional<std::string>> PngAsPillowReadsIt(ByteSpan encoded);

}  // namespace millrace
