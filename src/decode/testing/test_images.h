#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/image.h"

/// Makes the images of the tests: every kind that the decoders meet, from the codecs' own encoders.

namespace millrace::testing {

/// Returns smooth colour ramps with texture, which survive JPEG with little loss. They are RGB, and a function of the
/// size.
std::vector<uint8_t> MakeRgb(int width, int height);

enum class JpegKind { kYcc420, kYcc422, kYcc440, kYcc411, kYcc444, kRgb, kGrey, kCmyk, kYcck, kTwoComponents };

struct JpegOptions {
  JpegKind kind = JpegKind::kYcc420;
  int quality = 92;
  bool progressive = false;
  bool arithmetic = false;
  int restart_rows = 0;
  int restart_interval = 0;  // MCUs
  std::string exif;          // the payload of an APP1 marker
  bool noise = false;        // random bytes in place of MakeRgb: all that a Huffman table knows comes up
  bool optimised = false;    // Huffman tables of its own
};

/// Returns MakeRgb(width, height) as a JPEG. CMYK is inverted, as Adobe writes it.
std::string MakeJpeg(int width, int height, const JpegOptions& options = {});

/// Returns a progressive grey JPEG with `scans` scans, most of them empty refinements: small to store, slow to decode.
std::string MakeManyScans(int width, int height, int scans);

/// Returns all rows of a JPEG at 1/denominator through plain libjpeg: RGBX, or grey. Returns an empty vector when it
/// cannot be decoded.
std::vector<uint8_t> DecodeWhole(const std::string& jpeg, int denominator, int channels, ImageSize* size);

struct PngOptions {
  int color_type = 2;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
  int depth = 8;
  bool interlaced = false;
};

/// Holds a lossless file.
struct Png {
  std::string bytes;
  std::vector<uint8_t> rgb;  // what a decoder must find
};

enum class OtherFormat { kWebp, kTiff, kBmp, kGif };

/// Returns MakeRgb(width, height) without loss; as a GIF in 128 colours. There are at most 65,535 pixels a side.
Png MakeOther(OtherFormat format, int width, int height);

/// Depths below 8 and palettes reduce the colours, so the expected pixels come with the file.
Png MakePng(int width, int height, const PngOptions& options);

}  // namespace millrace::testing
