#include "decode/jpeg_tiles.h"

#include <algorithm>
#include <cstring>

#include "decode/jpeg_segments.h"

namespace millrace {
namespace {

constexpr size_t kMarkerBytes = 2;
constexpr int kBlockSide = 8;
constexpr unsigned kMaxComponents = 4;

void PutBe16(char* to, int value) {
  to[0] = static_cast<char>(value >> 8);
  to[1] = static_cast<char>(value & 0xFF);
}

int DivideUp(int a, int b) {
  return (a + b - 1) / b;
}

uint8_t ByteAt(ByteSpan bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}

}  // namespace

bool JpegTiles::Parse(ByteSpan encoded) {
  encoded_ = encoded;
  head_.clear();
  width_ = height_ = interval_ = 0;
  size_t scan = 0;
  return ParseHead(&scan) && Divide() && FindMarkers(scan);
}

void JpegTiles::Keep(const JpegSegment& segment) {
  head_.append(AsText(encoded_.subspan(segment.begin, segment.end - segment.begin)));
}

bool JpegTiles::ParseHead(size_t* scan) {
  head_.append("\xFF\xD8", kMarkerBytes);
  JpegSegments segments(encoded_);
  bool has_interval = false;
  while (const auto segment = segments.Next()) {
    switch (segment->marker) {
      case jpeg_marker::kSof0:
      case jpeg_marker::kSof1:
        if (!TakeFrame(*segment)) return false;
        break;
      case jpeg_marker::kDri:
        if (has_interval || segment->payload.size() != 2) return false;
        interval_ = static_cast<int>(LoadBe16(segment->payload.data()));
        has_interval = true;
        Keep(*segment);
        break;
      case jpeg_marker::kApp0:
      case jpeg_marker::kApp14:
      case jpeg_marker::kDht:
      case jpeg_marker::kDqt:
        Keep(*segment);
        break;
      case jpeg_marker::kSos:
        Keep(*segment);
        *scan = segment->end;
        return TakeScan(*segment);
      default:
        if (segment->marker == jpeg_marker::kComment) break;
        if (segment->marker > jpeg_marker::kApp0 && segment->marker <= jpeg_marker::kApp15) break;
        return false;
    }
  }
  return false;
}

bool JpegTiles::TakeFrame(const JpegSegment& segment) {
  constexpr size_t kFixed = 6;         // precision, height, width, number of components
  constexpr size_t kPerComponent = 3;  // name, sampling factors, quantisation table
  const ByteSpan payload = segment.payload;
  if (width_ != 0 || payload.size() < kFixed || ByteAt(payload, 0) != 8) return false;
  height_ = static_cast<int>(LoadBe16(payload.data() + 1));
  width_ = static_cast<int>(LoadBe16(payload.data() + 3));
  const size_t components = ByteAt(payload, 5);
  if (height_ == 0 || width_ == 0 || components == 0 || components > kMaxComponents) return false;
  if (payload.size() != kFixed + kPerComponent * components) return false;
  int horizontal = 1;
  int vertical = 1;
  for (size_t i = 0; i < components; ++i) {
    const uint8_t factors = ByteAt(payload, kFixed + kPerComponent * i + 1);
    if ((factors >> 4) < 1 || (factors >> 4) > 4 || (factors & 15) < 1 || (factors & 15) > 4) return false;
    horizontal = std::max(horizontal, factors >> 4);
    vertical = std::max(vertical, factors & 15);
  }
  components_ = static_cast<int>(components);
  // A scan of one component has blocks for MCUs, whatever its factors are.
  mcu_width_ = kBlockSide * (components == 1 ? 1 : horizontal);
  mcu_height_ = kBlockSide * (components == 1 ? 1 : vertical);
  constexpr size_t kBeforeSize = kMarkerBytes + 2 + 1;  // the marker, the length, the precision
  size_at_ = head_.size() + kBeforeSize;
  Keep(segment);
  return true;
}

// Takes one scan with all coefficients of all components.
bool JpegTiles::TakeScan(const JpegSegment& segment) const {
  const ByteSpan payload = segment.payload;
  const auto components = static_cast<size_t>(components_);
  if (width_ == 0 || payload.size() != 4 + 2 * components || ByteAt(payload, 0) != components) return false;
  const size_t at = 1 + 2 * components;
  return ByteAt(payload, at) == 0 && ByteAt(payload, at + 1) == 63 && ByteAt(payload, at + 2) == 0;
}

bool JpegTiles::Divide() {
  const int mcus = DivideUp(width_, mcu_width_);
  if (interval_ == 0 || interval_ > mcus || mcus % interval_ != 0) return false;
  tile_width_ = interval_ * mcu_width_;
  columns_ = mcus / interval_;
  rows_ = DivideUp(height_, mcu_height_);
  // Before memory is taken: each tile but the first follows a marker.
  return tiles() > 1 && static_cast<size_t>(tiles()) <= encoded_.size() / kMarkerBytes;
}

bool JpegTiles::FindMarkers(size_t scan) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(encoded_.data());
  const auto wanted = static_cast<size_t>(tiles());
  starts_.clear();
  starts_.push_back(scan);
  size_t at = scan;
  while (at < encoded_.size()) {
    const auto* const found = static_cast<const uint8_t*>(std::memchr(bytes + at, 0xFF, encoded_.size() - at));
    if (found == nullptr || found + 1 == bytes + encoded_.size()) return false;
    at = static_cast<size_t>(found - bytes) + kMarkerBytes;
    const uint8_t code = found[1];
    if (code == 0) continue;  // 0xFF as such
    if (code == jpeg_marker::kEoi) {
      starts_.push_back(at);
      return starts_.size() == wanted + 1;
    }
    if (starts_.size() == wanted || code != jpeg_marker::kRst0 + (starts_.size() - 1) % 8) return false;
    starts_.push_back(at);
  }
  return false;
}

JpegTiles::Part JpegTiles::Cover(const Region& region) const {
  Part part{.first_column = region.left / tile_width_,
            .end_column = DivideUp(region.right, tile_width_),
            .first_row = region.top / mcu_height_,
            .end_row = DivideUp(region.bottom, mcu_height_),
            .pixels = {}};
  const auto width = [&] { return std::min(part.end_column * tile_width_, width_) - part.first_column * tile_width_; };
  if (width() <= mcu_width_ && part.first_column > 0) --part.first_column;
  if (width() <= mcu_width_ && part.end_column < columns_) ++part.end_column;
  part.pixels = {.left = part.first_column * tile_width_,
                 .top = part.first_row * mcu_height_,
                 .right = std::min(part.end_column * tile_width_, width_),
                 .bottom = std::min(part.end_row * mcu_height_, height_)};
  return part;
}

void JpegTiles::Splice(const Part& part, std::string* out) const {
  *out = head_;
  PutBe16(out->data() + size_at_, part.pixels.bottom - part.pixels.top);
  PutBe16(out->data() + size_at_ + 2, part.pixels.right - part.pixels.left);
  unsigned number = 0;
  for (int row = part.first_row; row < part.end_row; ++row) {
    for (int column = part.first_column; column < part.end_column; ++column) {
      const size_t tile = static_cast<size_t>(row) * columns_ + column;
      out->append(AsText(encoded_.subspan(starts_[tile], starts_[tile + 1] - starts_[tile])));
      out->back() = static_cast<char>(jpeg_marker::kRst0 + number++ % 8);
    }
  }
  out->back() = static_cast<char>(jpeg_marker::kEoi);
}

}  // namespace millrace
