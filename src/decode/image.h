#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "decode/transform.h"

namespace millrace {

enum class DType : uint8_t { kU8, kF32 };
enum class Layout : uint8_t { kNhwc, kNchw };
/// All but kNearest are antialiased, as Pillow's filters of these names.
enum class Interpolation : uint8_t { kBilinear, kNearest, kBicubic, kBox };

/// Gives the shape and type of every image of a batch. It is fixed for a loader, so that shapes never change.
struct ImageSpec {
  int height = 224;
  int width = 224;
  int channels = 3;  // 3 = RGB, 1 = grey
  /// kNearest: each pixel is that of the source in which its centre lies.
  Interpolation interpolation = Interpolation::kBilinear;
  /// This is for masks, whose pixels are numbers and not colours: one channel, u8 and nearest only. Pixels are the
  /// indices of a palette, or the samples of a grey image as they are stored. Other images are refused
  /// (InvalidArgument).
  bool numbers = false;
  /// An image is turned and mirrored as its EXIF data say, before all else. Else it is taken as it is stored, but a
  /// TIFF is turned in any case, as by Pillow.
  bool exif_orientation = false;
  /// Instead of pixels, batches hold the file as it is stored, and the part of it to show. The receiver of a batch
  /// decodes it.
  bool encoded = false;
  bool augment = false;  // false: resize the shorter side and crop the centre; true: random resized crop and flip
  /// In place of `augment` if there are any: height and width must be those that they yield.
  std::vector<ImageTransform> transforms;
  /// The image is decoded in full size before it is cropped and resized. Else a JPEG that is much larger than needed is
  /// shrunk by its codec first, and one that is reduced is made RGB after it was resized.
  bool exact = false;
  DType dtype = DType::kU8;
  Layout layout = Layout::kNhwc;

  // These fields describe augmentation, with torchvision's defaults.
  std::array<double, 2> crop_scale{0.08, 1.0};         // part of the image's area
  std::array<double, 2> crop_ratio{3.0 / 4, 4.0 / 3};  // width / height
  double flip_probability = 0.5;

  // These apply to f32 only: (pixel / 255 - mean) / std per channel. u8 pixels are never normalised.
  std::array<float, 3> mean{0, 0, 0};
  std::array<float, 3> std{1, 1, 1};

  size_t pixels() const { return static_cast<size_t>(height) * width * channels; }
  size_t bytes() const { return pixels() * (dtype == DType::kF32 ? 4 : 1); }
  absl::Status Check() const;
};

/// Width and height from the header of an image, of a TIFF as it is turned; no pixels are decoded.
struct ImageSize {
  int width = 0;
  int height = 0;
};
absl::StatusOr<ImageSize> ReadImageSize(ByteSpan encoded);

/// Describes a rectangle of the source, in pixels of the full-size image; (0, 0) is the top left corner of the first
/// pixel.
struct SourceCrop {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  // These bound the pixels that may contribute: an antialiased filter reaches beyond the rectangle, but never beyond
  // these.
  int left = 0;
  int top = 0;
  int right = 0;   // one past the last
  int bottom = 0;  // one past the last
  bool flip = false;
  bool flip_vertical = false;
};

/// Changes the shape of a picture after cropping and resizing. The pixel (x, y) of the result is that of the picture at
/// (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]). (0, 0) is the top left corner of the first pixel. Pixels from
/// outside the picture are filled.
struct Warp {
  std::array<double, 6> inverse{1, 0, 0, 0, 1, 0};
  bool bilinear = false;  // else nearest
};

/// Describes the part of an image that an output shows. Other images, and boxes, of the same scene follow it.
struct Frame {
  ImageSize image;  // as it is seen, if it was turned
  SourceCrop crop;
  ImageSize output;         // whose pixels the warps are in
  std::vector<Warp> warps;  // in this order, after the crop
};

/// Returns the frame that ImageDecoder::Decode would show of an image with this spec and key, from its header alone,
/// without warps. Returns DataLoss and InvalidArgument as Decode does.
absl::StatusOr<Frame> ReadFrame(ByteSpan encoded, const ImageSpec& spec, uint64_t key);

/// Grants the memory of images that cannot be decoded row by row: progressive JPEGs, interlaced PNGs, extreme
/// reductions.
class ImageMemory {
 public:
  virtual ~ImageMemory() = default;
  /// `bytes` are taken, to be given back by Return; may wait for other decoders. Or an error, and nothing is taken.
  virtual absl::Status Take(uint64_t bytes) = 0;
  virtual void Return(uint64_t bytes) = 0;
};

enum class JpegReading : uint8_t {
  kNeeded,  // only the codes that the crop needs; markers give the rest. Warnings about other codes are not counted
  kAll,     // all of every file is entropy-decoded
};

/// Decodes JPEG and PNG. Owns reusable scratch memory, so keep one a thread. Not thread-safe. The output is a pure
/// function of (bytes, spec, key): the same on every thread and machine of an architecture.
///
///   ImageDecoder decoder;
///   std::vector<std::byte> image(spec.bytes());
///   RETURN_IF_ERROR(decoder.Decode(encoded, spec, key, image));
///
/// Pixels are those of Pillow's convert("RGB") or convert("L"), except that 16-bit samples keep their high byte.
/// Transparency is dropped, and colour profiles are not applied. The EXIF orientation is applied only to TIFF, or if
/// the caller asks for it. Geometry and transforms are torchvision's (geometry.h, transform.h). A JPEG that is much
/// larger than needed is shrunk to 1/2, 1/4 or 1/8 while it is decoded, and one that is reduced is made RGB last,
/// unless the spec says `exact`. Images above 65,500 pixels a side or 2^28 in all are refused.
class ImageDecoder {
 public:
  /// The memory that an image takes above kScratchBytes is reserved from `memory`, which outlives the decoder. If it is
  /// null, there is no bound except that of the codecs. The pixels do not depend on `reading`.
  explicit ImageDecoder(ImageMemory* memory = nullptr, JpegReading reading = JpegReading::kNeeded);
  ~ImageDecoder();
  static constexpr uint64_t kScratchBytes = uint64_t{4} << 20;

  /// Writes one image of spec.bytes() bytes to `out`. `key` seeds the augmentation (unused otherwise). When `pixels` is
  /// not empty (spec.pixels() bytes), it also gets the final u8 HWC pixels, before normalisation. Returns DataLoss if
  /// Pillow calls the image damaged or cut off (LOAD_TRUNCATED_IMAGES is off), whatever part of it is needed. If Pillow
  /// shows an image in spite of faults, it is shown, and warnings() counts. Returns InvalidArgument for a format that
  /// is not supported. `out` is unspecified after an error.
  absl::Status Decode(ByteSpan encoded, const ImageSpec& spec, uint64_t key, MutableByteSpan out,
                      MutableByteSpan pixels = {});

  /// Returns the codec's warnings about the last image that was decoded: faults that leave it as Pillow shows it.
  uint64_t warnings() const;

  /// Returns the frame that the last call, which succeeded, has shown.
  const Frame& frame() const;

  /// Decodes the part that `leader` shows of another image of the same scene, with its flips and warps. The two may
  /// differ in size, but not in shape, which is DataLoss. The fields of the spec that say how to crop, and its
  /// transforms, do not count.
  absl::Status DecodeLike(ByteSpan encoded, const ImageSpec& spec, const Frame& leader, MutableByteSpan out,
                          MutableByteSpan pixels = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
