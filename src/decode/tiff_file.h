#pragma once

#include <tiffio.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// Holds a file in memory, as libtiff reads it, and its messages of errors.
struct TiffFile {
  ByteSpan bytes;
  uint64_t position = 0;
  std::string error;
};

struct CloseTiffFile {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};

/// Opens a file in memory, which must outlive the result. Returns null if libtiff cannot read it; `error` says why. No
/// allocation of libtiff exceeds kMaxCodecBytes. ResourceExhausted if memory is lacking.
absl::StatusOr<std::unique_ptr<TIFF, CloseTiffFile>> OpenTiff(TiffFile* file);

/// Returns true for a method of compression whose memory is bounded.
bool IsBoundedMethod(uint16_t compression);

/// Returns true if the file says that its pixels are places in a color map. If that is damaged, libtiff says that they
/// are grey.
bool SaysPalette(ByteSpan file);

}  // namespace millrace
