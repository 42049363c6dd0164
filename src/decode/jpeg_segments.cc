#include "decode/jpeg_segments.h"

namespace millrace {

std::optional<JpegSegment> JpegSegments::Next() {
  if (done_) return std::nullopt;
  done_ = true;  // unless a segment follows
  if (at_ == 0) {
    if (encoded_.size() < 2 || At(0) != 0xFF || At(1) != jpeg_marker::kSoi) return std::nullopt;
    at_ = 2;
  }
  if (encoded_.size() - at_ < 4 || At(at_) != 0xFF) return std::nullopt;
  const uint8_t marker = At(at_ + 1);
  const bool has_length =
      marker >= jpeg_marker::kSof0 && marker != 0xFF && !(marker >= jpeg_marker::kRst0 && marker <= jpeg_marker::kEoi);
  if (!has_length) return std::nullopt;
  const size_t length = LoadBe16(encoded_.data() + at_ + 2);  // counts its own two bytes
  if (length < 2 || length > encoded_.size() - at_ - 2) return std::nullopt;
  const JpegSegment segment{
      .marker = marker, .begin = at_, .end = at_ + 2 + length, .payload = encoded_.subspan(at_ + 4, length - 2)};
  at_ = segment.end;
  done_ = marker == jpeg_marker::kSos;
  return segment;
}

}  // namespace millrace
