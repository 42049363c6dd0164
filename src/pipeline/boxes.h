#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "decode/image.h"

/// Boxes of an image, which follow its crop, flip and size. Pure.

namespace millrace {

/// How a field has boxes: an .npy file of numbers [n, 4], or JSON, a list of lists of four numbers.
struct BoxSpec {
  enum class Form : uint8_t {
    kXyxy,    // left, top, right, bottom
    kXywh,    // left, top, width, height
    kCxcywh,  // centre, width, height
  };
  Form form = Form::kXyxy;
  bool normalized = false;  // parts of the image's width and height, not pixels
  /// Names of members of JSON, with dots between them, that lead to the boxes; in a list each element is gone through
  /// ("annotations.bbox"). "": the list of boxes is all of it.
  std::string json_path;

  /// Of "xywh", "cxcywh,normalized", "xyxy:annotations.bbox". InvalidArgument with what is taken.
  static absl::StatusOr<BoxSpec> Parse(std::string_view text);
  friend bool operator==(const BoxSpec&, const BoxSpec&) = default;
};

struct Box {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

/// The boxes of a field, in pixels of the image, as it is seen. DataLoss if it has none of the forms above, or numbers
/// that are not finite.
absl::StatusOr<std::vector<Box>> ParseBoxes(ByteSpan value, const BoxSpec& spec, const ImageSize& image);

/// The part of the box that an output of that size shows, in its pixels; of a sheared or turned picture, the smallest
/// upright box that holds it. All zeros if there is none, or one without an area.
Box ShownBox(const Box& box, const Frame& frame, int width, int height);

/// An .npy file, float32 [n, 4]: left, top, right, bottom.
std::string BoxesToNpy(const std::vector<Box>& boxes);

/// At most, of a field of so many bytes.
constexpr uint64_t BoxBytesAtMost(uint64_t stored_bytes) {
  return 256 + 4 * stored_bytes;  // a box takes four bytes at least, as four small integers of an .npy file
}

}  // namespace millrace
