#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "decode/resample.h"
#include "decode/row_reader.h"

struct jpeg_decompress_struct;

namespace millrace {

/// Crops and resizes a JPEG in the planes of its components, and makes RGB only of the pixels that are left. The
/// library libjpeg would first double the chroma and convert all pixels of the source. Upsampling, conversion and
/// resizing are weighted sums. Their order changes only how they are rounded, and what is cut off at 0 and 255.
///
/// The rows that it keeps of one image take at most kMostBytes. Reusable; not thread-safe. Methods that take the JPEG
/// call libjpeg, and may not return if it finds an error (JpegGuard).
class JpegPlanes {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;

  /// Chooses the part of the whole image, by the axes of a resize of its pixels, which outlive this use; the scale of
  /// the JPEG has been set. False if it is not of three components of YCbCr in a usual resolution, or if it takes too
  /// much memory: then libjpeg has to do it.
  bool Aim(jpeg_decompress_struct* jpeg, const ResizeAxis& horizontal, const ResizeAxis& vertical);

  /// Call this before jpeg_start_decompress, of that image or of one that shows a part of it.
  static void Prepare(jpeg_decompress_struct* jpeg);

  /// Call this after jpeg_start_decompress. `left` and `top` are the columns and rows of the whole image before the
  /// part. `skips` says that JpegHuffman decodes.
  void Start(jpeg_decompress_struct* jpeg, int left, int top, bool skips);

  /// Returns whether all rows were emitted.
  bool done() const { return next_ == vertical_->outputs(); }

  /// Reads the next row of MCUs.
  void Read(jpeg_decompress_struct* jpeg);

  /// Puts out the rows for which that suffices.
  void Emit(RowSink emit);

  /// Reads the codes that are left, so that damage is found. jpeg_finish_decompress is left to the caller.
  void Finish(jpeg_decompress_struct* jpeg);

 private:
  static constexpr size_t kPlanes = 3;
  static constexpr int kBlockSide = 8;
  static constexpr int kMostBlocks = 10;  // of an MCU
  static constexpr int kMostRows = 4 * kBlockSide;

  struct Plane {
    const ResizeAxis* horizontal = nullptr;
    const ResizeAxis* vertical = nullptr;
    int mcu_width = 0;  // in samples
    int mcu_height = 0;
    int first_column = 0;  // of the whole plane, that the rows begin with
    int first_row = 0;     // that is read
    int ring_rows = 0;
    size_t stride = 0;
    std::vector<uint8_t> ring;
    std::array<uint8_t*, kMostRows> rows{};  // of the MCUs in hand
    std::vector<const uint8_t*> taps;
    std::vector<int16_t> blended;
    std::vector<int16_t> resized;
  };

  void SizeRings();
  void Reserve(Plane* plane) const;
  bool Ready(const Plane& plane) const;
  void Resize(Plane* plane);
  void ReadCodes(jpeg_decompress_struct* jpeg);
  void ReadCoefficients(jpeg_decompress_struct* jpeg);
  void Transform(jpeg_decompress_struct* jpeg, size_t component, int16_t* block, int x, int y);

  const ResizeAxis* vertical_ = nullptr;
  ResizeAxis halved_horizontal_;
  ResizeAxis halved_vertical_;
  std::array<Plane, kPlanes> planes_;
  bool skips_ = false;
  int mcu_columns_ = 0;
  int mcu_rows_ = 0;
  int first_mcu_ = 0;  // of a row that is needed
  int end_mcu_ = 0;
  int first_mcu_row_ = 0;
  int mcu_row_ = 0;  // the next one
  int next_ = 0;     // row of the output
  std::vector<uint8_t> out_;
  alignas(32) std::array<int16_t, kMostBlocks * kBlockSide * kBlockSide> blocks_{};
};

}  // namespace millrace
