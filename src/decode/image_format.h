#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// These formats are decoded, whatever a file is called.
enum class ImageFormat : uint8_t { kJpeg, kPng, kWebp, kTiff, kBmp, kGif };

/// Recognises the format by the first bytes. Returns InvalidArgument, with its name, for a format that is known and not
/// decoded; DataLoss for bytes that are not an image.
absl::StatusOr<ImageFormat> SniffImageFormat(ByteSpan encoded);

std::string_view NameOf(ImageFormat format);

}  // namespace millrace
