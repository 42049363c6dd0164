#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "decode/row_reader.h"

namespace millrace {

struct JpegSegment;

/// Finds the tiles of a JPEG: the codes between two restart markers, if the restart interval divides the rows of MCUs.
/// Nothing that is decoded in one tile depends on another, so a smaller JPEG can be put together from those that show a
/// part of the image. Pure; reusable; not thread-safe.
class JpegTiles {
 public:
  /// Reads the head and finds the markers, at some GB/s. `encoded` must outlive the use of the result. Returns false if
  /// the JPEG has no tiles, or if it is anything but a whole baseline JPEG of one scan whose markers come in order.
  /// Then only a decoder that reads all of it can decide what it is.
  bool Parse(ByteSpan encoded);

  /// Describes tiles, end exclusive, and the pixels of the image that they show.
  struct Part {
    int first_column = 0;
    int end_column = 0;
    int first_row = 0;
    int end_row = 0;
    Region pixels;
  };

  /// Returns the fewest tiles that show a region, in pixels of the image and within it. They are wider than one MCU,
  /// unless the image is not: libjpeg upsamples the chroma of narrower images in another way.
  Part Cover(const Region& region) const;

  int tiles() const { return columns_ * rows_; }
  static int TilesOf(const Part& part) {
    return (part.end_column - part.first_column) * (part.end_row - part.first_row);
  }

  /// Replaces `out` by a JPEG that shows just `part`.
  void Splice(const Part& part, std::string* out) const;

 private:
  bool ParseHead(size_t* scan);
  bool TakeFrame(const JpegSegment& segment);
  bool TakeScan(const JpegSegment& segment) const;
  bool Divide();
  bool FindMarkers(size_t scan);
  void Keep(const JpegSegment& segment);

  ByteSpan encoded_;
  std::string head_;    // without what the pixels do not depend on
  size_t size_at_ = 0;  // of the height and width in head_
  int width_ = 0;
  int height_ = 0;
  int components_ = 0;
  int mcu_width_ = 0;  // in pixels
  int mcu_height_ = 0;
  int interval_ = 0;    // in MCUs
  int tile_width_ = 0;  // in pixels; a tile is one MCU high
  int columns_ = 0;
  int rows_ = 0;
  std::vector<size_t> starts_;  // of the tiles' bytes; and where one more would begin
};

}  // namespace millrace
