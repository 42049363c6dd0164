#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/bytes.h"
#include "base/status.h"
#include "decode/image.h"

namespace millrace {

class ResizeAxis;

/// No image above these is decoded: they are the largest that libjpeg takes, and what bounds the time that a small file
/// can cost.
inline constexpr int kMaxImageSide = 65'500;
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 28;
/// A codec may hold at most this at once of an image that cannot be streamed (progressive JPEG, interlaced PNG, WebP,
/// rare kinds of TIFF). It is enough for any image of kMaxImagePixels. ImageMemory refuses what a budget does not hold.
inline constexpr size_t kMaxCodecBytes = size_t{4} << 30;

absl::Status CheckImageSize(int64_t width, int64_t height);

/// Describes the part of an image that is needed, in pixels after shrinking; right and bottom are one past the last.
struct Region {
  int left = 0;
  int top = 0;
  int right = 0;
  int bottom = 0;
};

/// Says what the pixels of rows are.
enum class PixelForm : uint8_t {
  kRgbx,     // 4 bytes, X undefined
  kGrey,     // 1 byte: luma
  kNumbers,  // 1 byte: the indices of a palette, or the samples of a grey image as they are stored
};
inline int BytesOf(PixelForm form) {
  return form == PixelForm::kRgbx ? 4 : 1;
}

/// Holds some rows of the region, in order. Valid until the next call; `first` points at the region's left pixel. A row
/// is readable for kernels::kSlackBytes beyond its last pixel.
struct RowBlock {
  const uint8_t* first = nullptr;
  size_t stride = 0;
  int rows = 0;
};

/// Takes row `y` of a resized image, RGBX, which is valid during the call. Rows come in order.
using RowSink = absl::FunctionRef<void(int y, const uint8_t* row)>;

/// Reads the pixels of one encoded image, top down. Calls come in this order: Open, Start, Next until the region's rows
/// are read (or Resize in place of both), Finish, Close. The encoded bytes must live that long. After an error only
/// MustReadAgain, Close and Open may follow. Not thread-safe. Errors are as in ImageDecoder::Decode.
class RowReader {
 public:
  virtual ~RowReader() = default;

  virtual absl::StatusOr<ImageSize> Open(ByteSpan encoded) = 0;

  /// Returns whether Start takes denominators other than 1.
  virtual bool can_shrink() const = 0;

  /// Returns true if pixels may be numbers of a mask or a measurement, which cannot be mixed: one sample, or places of
  /// a palette. It is not asked of JPEG, PNG and WebP.
  virtual bool may_be_numbers() const { return false; }

  /// Returns the bytes that Start will hold until Close because the image cannot be read row by row; 0 if it can.
  virtual uint64_t held_bytes() const = 0;

  /// `denominator` 1, 2, 4 or 8 shrinks to that part, rounding up; the region lies within the shrunk image and is not
  /// empty. InvalidArgument if the image has no pixels of that form.
  virtual absl::Status Start(const Region& region, int denominator, PixelForm form) = 0;
  virtual absl::StatusOr<RowBlock> Next() = 0;

  /// Crops and resizes by itself, in RGBX. It does so if that is faster than with the rows that Start and Next yield,
  /// and if only the rounding of numbers differs. The axes are of the pixels of the image shrunk by `denominator`.
  /// Returns false, and does nothing, if there is no such way.
  virtual absl::StatusOr<bool> Resize(const ResizeAxis& /*horizontal*/, const ResizeAxis& /*vertical*/,
                                      int /*denominator*/, RowSink /*emit*/) {
    return false;
  }

  /// Reads what follows the region, so that damage is found wherever it is, whatever part of the image is needed.
  /// (JpegReading says what a JPEG with tiles leaves out.)
  virtual absl::Status Finish() = 0;

  /// Returns the number of the codec's warnings about faults of the current image in spite of which other programs show
  /// it.
  virtual uint64_t warnings() const { return 0; }

  /// Returns true if the current image, whose calls have ended with `outcome`, was read in a fast way and shows faults:
  /// the plain way might show something else. Then the caller repeats all calls from Open on. That time the reader
  /// takes the plain way, which decides. Sound images are never read twice.
  virtual bool MustReadAgain(const absl::Status& /*outcome*/) { return false; }

  /// Frees what belongs to the image. Allowed at any time; the next Open does it, too.
  virtual void Close() = 0;
};

/// Returns the error for an image that has no PixelForm::kNumbers.
absl::Status NotNumbers(std::string_view what);

/// Converts CMYK to RGBX in place, by Pillow's arithmetic. Inverted means that each ink is the light that it leaves.
void RgbxFromInvertedCmyk(uint8_t* pixels, size_t count);

/// Computes luma as ITU-R 601 weighs it, in Pillow's fixed point. It works in place: `grey` may equal `rgbx`.
void GreyFromRgbx(const uint8_t* rgbx, size_t pixels, uint8_t* grey);

}  // namespace millrace
