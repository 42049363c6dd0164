#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "decode/image.h"

namespace millrace {

/// Says how the stored pixels of a photograph become what its camera saw. Pure.
struct Orientation {
  bool transposed = false;  // columns are stored as rows
  bool mirrored_x = false;  // of the stored image: the first column shows what is at its right end
  bool mirrored_y = false;  // the first row shows what is at its bottom
  bool turns() const { return transposed || mirrored_x || mirrored_y; }
};

/// Finds the orientation by the EXIF data of a JPEG, PNG or WebP, or the tags of a TIFF; if these have no orientation,
/// by the XMP data. An image is as it is stored if they say nothing, or nothing sensible.
Orientation OrientationOf(ByteSpan encoded);

/// Returns how the decoder turns an image: as Pillow does, which turns a TIFF when it loads it, and others only by
/// exif_transpose (`by_exif`).
Orientation OrientationToShow(ByteSpan encoded, bool by_exif);

/// Returns the size of the image as it is seen; and the other way round.
ImageSize Turned(ImageSize size, const Orientation& orientation);

/// Returns the part of the stored image (`size`) that holds a part of the image as it is seen, without its flips.
SourceCrop StoredCrop(const SourceCrop& seen, ImageSize size, const Orientation& orientation);

/// Takes the rows of a small stored image and gives those of the image as it is seen.
class RowTurner {
 public:
  /// `stored` rows and columns of `pixel_bytes` each will come.
  void Start(ImageSize stored, int pixel_bytes, const Orientation& orientation);
  void Put(int y, const uint8_t* row);
  /// All rows have come. `flip`: each is mirrored besides. A row is readable for `slack` bytes beyond its end.
  void Finish(bool flip, size_t slack, absl::FunctionRef<void(int y, const uint8_t* row)> each);

 private:
  ImageSize stored_;
  size_t pixel_bytes_ = 0;
  Orientation orientation_;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> row_;
};

}  // namespace millrace
