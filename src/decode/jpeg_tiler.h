#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// Returns the same image with restart markers, so that a crop can be decoded without the rest (jpeg_tiles.h). The
/// coefficients, and with them the pixels, stay as they are, and so do all markers with metadata. The result is a
/// baseline JPEG of one scan with Huffman tables of its own, which any decoder reads. The restart interval divides the
/// rows of MCUs. It is the smallest of at least 4 MCUs with which the file grows by at most 2 %, else the whole row.
/// Growth is relative to the larger of the source and a baseline file without markers.
///
/// Returns nullopt for the rare kind whose components baseline cannot interleave, and for files with faults in spite of
/// which they are shown: they stay as they are. Errors are as in ImageDecoder::Decode; a JPEG of which more than
/// `memory_bytes` would have to be held is InvalidArgument. Pure.
absl::StatusOr<std::optional<std::string>> TileJpeg(ByteSpan encoded, uint64_t memory_bytes);

}  // namespace millrace
