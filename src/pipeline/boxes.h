#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "decode/image.h"

/// Boxes of an image follow its crop, flip and size. Pure.

namespace millrace {

/// Represents the form of the boxes in a field: an .npy file of numbers [n, 4], or JSON, a list of lists of four
/// numbers.
struct BoxSpec {
  enum class Form : uint8_t {
    kXyxy,    // left, top, right, bottom
    kXywh,    // left, top, width, height
    kCxcywh,  // centre, width, height
  };
  Form form = Form::kXyxy;
  bool normalized = false;  // parts of the image's width and height, not pixels
  /// Names of members of JSON, with dots between them, that lead to the boxes ("annotations.bbox"). In a list, each
  /// element is visited. If it is "", the list of boxes is all of the JSON.
  std::string json_path;

  /// Parses "xywh", "cxcywh,normalized", "xyxy:annotations.bbox". InvalidArgument names the forms that are accepted.
  static absl::StatusOr<BoxSpec> Parse(std::string_view text);
  friend bool operator==(const BoxSpec&, const BoxSpec&) = default;
};

struct Box {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

/// Parses the boxes of a field, in pixels of the image as it is seen. DataLoss if the value is in none of the forms
/// above, or if numbers are not finite.
absl::StatusOr<std::vector<Box>> ParseBoxes(ByteSpan value, const BoxSpec& spec, const ImageSize& image);

/// Returns the part of the box that an output of that size shows, in its pixels. For a sheared or turned picture, it is
/// the smallest upright box that holds the part. All zeros if there is no such part, or one without an area.
Box ShownBox(const Box& box, const Frame& frame, int width, int height);

/// Returns an .npy file, float32 [n, 4]: left, top, right, bottom.
std::string BoxesToNpy(const std::vector<Box>& boxes);

/// Returns an upper bound for a field of so many bytes.
constexpr uint64_t BoxBytesAtMost(uint64_t stored_bytes) {
  return 256 + 4 * stored_bytes;  // a box takes four bytes at least, as four small integers of an .npy file
}

}  // namespace millrace
