#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "decode/image_readers.h"
#include "decode/jpeg_guard.h"
#include "decode/jpeg_huffman.h"
#include "decode/jpeg_planes.h"
#include "decode/jpeg_segments.h"
#include "decode/jpeg_smoothing.h"
#include "decode/jpeg_tiles.h"
#include "decode/resample_kernels.h"

namespace millrace {
namespace {

/// Rows read at a time: enough to make the call cheap, few enough to stay in the cache.
constexpr int kStripRows = 16;
/// Columns read beyond the region: smooth chroma upsampling looks at neighbours, and takes the border of what is read
/// for the border of the image.
constexpr int kMargin = 2;
/// Gives a file to libjpeg piece by piece, and asks for more at its end, as Pillow does. Where it asks
/// decides if libjpeg takes a file that lacks its end marker.
struct JpegPieces {
  static constexpr size_t kPieceBytes = 65'536;

  jpeg_source_mgr source{};  // the first member, as which libjpeg knows it
  ByteSpan encoded;
  size_t given = 0;
  size_t to_skip = 0;

  void Attach(j_decompress_ptr jpeg, ByteSpan bytes) {
    *this = {};
    encoded = bytes;
    source.init_source = [](j_decompress_ptr) {};
    source.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };
    source.skip_input_data = [](j_decompress_ptr from, long count) {
      auto& self = *reinterpret_cast<JpegPieces*>(from->src);
      const auto wanted = static_cast<size_t>(std::max(count, 0L));
      const size_t here = std::min(wanted, self.source.bytes_in_buffer);
      self.source.next_input_byte += here;
      self.source.bytes_in_buffer -= here;
      self.to_skip += wanted - here;
    };
    source.resync_to_restart = jpeg_resync_to_restart;
    source.term_source = [](j_decompress_ptr) {};
    source.next_input_byte = reinterpret_cast<const JOCTET*>(encoded.data());
    jpeg->src = &source;
  }
  /// Returns false if nothing is left.
  bool GiveMore() {
    const size_t piece = std::min(kPieceBytes, encoded.size() - given);
    given += piece;
    source.bytes_in_buffer += piece;
    const size_t skipped = std::min(to_skip, source.bytes_in_buffer);
    source.next_input_byte += skipped;
    source.bytes_in_buffer -= skipped;
    to_skip -= skipped;
    return piece > 0;
  }
};
static_assert(std::is_standard_layout_v<JpegPieces>);

/// Returns true if the end of the image is marked somewhere from `from` on.
bool HasEndMarker(ByteSpan encoded, size_t from) {
  using std::string_view_literals::operator""sv;
  return AsText(encoded.subspan(from)).rfind("\xff\xd9"sv) != std::string_view::npos;
}

/// Returns true if only codes and restart markers lie between `from`, where the codes of the only scan begin, and the
/// end marker. Then libjpeg has no warning of these bytes that other programs take for an error.
bool OnlyCodesFollow(ByteSpan encoded, size_t from) {
  const auto* at = reinterpret_cast<const uint8_t*>(encoded.data()) + from;
  const auto* const end = reinterpret_cast<const uint8_t*>(encoded.data()) + encoded.size();
  while (at < end) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xFF, static_cast<size_t>(end - at)));
    if (at == nullptr) return false;
    while (at < end && *at == 0xFF) ++at;
    if (at == end) return false;
    if (*at == jpeg_marker::kEoi) return true;
    if (*at != 0 && (*at < jpeg_marker::kRst0 || *at > jpeg_marker::kRst7)) return false;
    ++at;
  }
  return false;
}

class JpegReader final : public RowReader {
 public:
  explicit JpegReader(JpegReading reading) : reading_(reading) {}
  ~JpegReader() override { Close(); }

  absl::StatusOr<ImageSize> Open(ByteSpan encoded) override;
  bool can_shrink() const override { return true; }
  uint64_t held_bytes() const override;
  absl::Status Start(const Region& region, int denominator, PixelForm form) override;
  absl::StatusOr<RowBlock> Next() override;
  absl::StatusOr<bool> Resize(const ResizeAxis& horizontal, const ResizeAxis& vertical, int denominator,
                              RowSink emit) override;
  absl::Status Finish() override;
  uint64_t warnings() const override { return warnings_ + guard_.warnings(); }
  bool MustReadAgain(const absl::Status& outcome) override;
  void Close() override;

 private:
  absl::Status ReadHeader(ByteSpan encoded);
  /// These are for guard_.Run: all of them read on until they have what they want, or leave because the file ends.
  void ReadOn();
  JDIMENSION ReadRows(JSAMPARRAY rows, JDIMENSION count);
  absl::Status UseTiles(Region* region, int denominator);
  void SetScale(int denominator);
  void StartDecompress();

  const JpegReading reading_;
  JpegGuard guard_;
  jpeg_decompress_struct jpeg_{};
  jpeg_progress_mgr progress_{};
  bool created_ = false;
  ByteSpan encoded_;
  JpegTiles tiles_;
  std::string spliced_;
  Region region_;  // of what libjpeg decodes
  PixelForm form_ = PixelForm::kRgbx;
  JDIMENSION first_column_ = 0;  // of what libjpeg decodes
  size_t stride_ = 0;
  std::vector<uint8_t> strip_;
  JpegHuffman huffman_;
  bool taken_over_ = false;  // by huffman_
  bool plain_ = false;       // the image in hand is read as a whole, and by libjpeg alone
  bool plain_next_ = false;  // the next one is
  JpegPlanes planes_;
  bool in_planes_ = false;      // the image in hand
  size_t codes_at_ = 0;         // in encoded_: where those of the first scan begin
  bool unmarked_ = false;       // the image has no end marker
  JpegPieces pieces_;           // of an image without one
  uint64_t warnings_ = 0;       // of an earlier reading of the header of the image in hand
  uint64_t head_warnings_ = 0;  // of guard_, before the first code
};

void JpegReader::Close() {
  if (created_) jpeg_destroy_decompress(&jpeg_);
  created_ = false;
}

absl::Status JpegReader::ReadHeader(ByteSpan encoded) {
  // Each image gets a new object: libjpeg keeps Huffman and quantisation tables, and a file that lacks them would be
  // decoded with those of the image before.
  Close();
  guard_.Attach(reinterpret_cast<j_common_ptr>(&jpeg_));
  const bool ok = guard_.Run([&] {
    jpeg_create_decompress(&jpeg_);
    created_ = true;
    if (unmarked_) {
      pieces_.Attach(&jpeg_, encoded);
      while (jpeg_read_header(&jpeg_, TRUE) == JPEG_SUSPENDED) ReadOn();
      return;
    }
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
    jpeg_read_header(&jpeg_, TRUE);
  });
  return ok ? absl::OkStatus() : guard_.status();
}

absl::StatusOr<ImageSize> JpegReader::Open(ByteSpan encoded) {
  encoded_ = encoded;
  plain_ = std::exchange(plain_next_, false);
  taken_over_ = false;
  in_planes_ = false;
  unmarked_ = false;
  warnings_ = 0;
  RETURN_IF_ERROR(ReadHeader(encoded));
  codes_at_ = encoded.size() - jpeg_.src->bytes_in_buffer;
  if (!HasEndMarker(encoded, codes_at_)) {
    unmarked_ = true;
    RETURN_IF_ERROR(ReadHeader(encoded));
  }
  RETURN_IF_ERROR(CheckImageSize(jpeg_.image_width, jpeg_.image_height));
  return ImageSize{static_cast<int>(jpeg_.image_width), static_cast<int>(jpeg_.image_height)};
}

void JpegReader::ReadOn() {
  if (!unmarked_ || !pieces_.GiveMore()) JpegGuard::LeaveAtEnd(reinterpret_cast<j_common_ptr>(&jpeg_));
}

JDIMENSION JpegReader::ReadRows(JSAMPARRAY rows, JDIMENSION count) {
  for (;;) {
    const JDIMENSION read = jpeg_read_scanlines(&jpeg_, rows, count);
    if (read > 0) return read;
    ReadOn();
  }
}

bool JpegReader::MustReadAgain(const absl::Status& outcome) {
  plain_next_ = taken_over_ && (!outcome.ok() || guard_.warnings() > head_warnings_ || huffman_.doubled_ff());
  return plain_next_;
}

// Continues with a JPEG of fewer tiles if these are enough for the region, which becomes relative to them.
absl::Status JpegReader::UseTiles(Region* region, int denominator) {
  // Most files are excluded by this, before they are searched for markers.
  if (reading_ == JpegReading::kAll || plain_ || unmarked_ || jpeg_.restart_interval == 0 ||
      jpeg_has_multiple_scans(&jpeg_)) {
    return absl::OkStatus();
  }
  const auto width = static_cast<int>(jpeg_.image_width);
  const auto height = static_cast<int>(jpeg_.image_height);
  const Region pixels{.left = std::max(region->left - kMargin, 0) * denominator,
                      .top = std::max(region->top - kMargin, 0) * denominator,
                      .right = std::min((region->right + kMargin) * denominator, width),
                      .bottom = std::min((region->bottom + kMargin) * denominator, height)};
  if (pixels.left == 0 && pixels.top == 0 && pixels.right == width && pixels.bottom == height) return absl::OkStatus();
  if (!tiles_.Parse(encoded_)) return absl::OkStatus();
  const JpegTiles::Part part = tiles_.Cover(pixels);
  if (JpegTiles::TilesOf(part) == tiles_.tiles()) return absl::OkStatus();
  tiles_.Splice(part, &spliced_);
  const int left = part.pixels.left / denominator;  // whole: a tile's sides are multiples of 8
  const int top = part.pixels.top / denominator;
  *region = {.left = region->left - left,
             .top = region->top - top,
             .right = region->right - left,
             .bottom = region->bottom - top};
  warnings_ = guard_.warnings();
  return ReadHeader(AsBytes(spliced_));
}

// The coefficients of all blocks take two bytes for each pixel of each component.
uint64_t JpegReader::held_bytes() const {
  if (!jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&jpeg_))) return 0;
  uint64_t blocks = 0;
  for (int i = 0; i < jpeg_.num_components; ++i) {
    blocks += uint64_t{jpeg_.comp_info[i].width_in_blocks} * jpeg_.comp_info[i].height_in_blocks;
  }
  return blocks * sizeof(JBLOCK);
}

// This is for guard_.Run, as the next one.
void JpegReader::SetScale(int denominator) {
  jpeg_.scale_num = 1;
  jpeg_.scale_denom = static_cast<unsigned>(denominator);
}

void JpegReader::StartDecompress() {
  jpeg_.dct_method = JDCT_ISLOW;
  jpeg_.mem->max_memory_to_use = static_cast<long>(kMaxCodecBytes);
  JpegGuard::LimitScans(&jpeg_, &progress_);
  head_warnings_ = guard_.warnings();
  while (jpeg_start_decompress(&jpeg_) == FALSE) ReadOn();
  taken_over_ = !plain_ && !unmarked_ && huffman_.TakeOver(&jpeg_);
}

absl::Status JpegReader::Start(const Region& region, int denominator, PixelForm form) {
  form_ = form;
  const bool cmyk = jpeg_.num_components == 4;
  if (jpeg_.num_components != 1 && jpeg_.num_components != 3 && !cmyk) {
    return absl::InvalidArgumentError(
        fmt::format("cannot decode a JPEG of {} components; store it as RGB or grey", jpeg_.num_components));
  }
  if (form == PixelForm::kNumbers && jpeg_.num_components != 1) return NotNumbers("a JPEG in colour");
  region_ = region;
  RETURN_IF_ERROR(UseTiles(&region_, denominator));
  const bool ok = guard_.Run([&] {
    SetScale(denominator);
    jpeg_.out_color_space = cmyk ? JCS_CMYK : form == PixelForm::kRgbx ? JCS_EXT_RGBX : JCS_GRAYSCALE;
    StartDecompress();
    first_column_ = 0;
    // All rows are made from the first one on, so that the pixels do not depend on the crop.
    if (plain_ || unmarked_ || LacksCoefficients(jpeg_)) return;
    const auto width = static_cast<int>(jpeg_.output_width);
    const int left = std::max(region_.left - kMargin, 0);
    const int right = std::min(region_.right + kMargin, width);
    if (left > 0 || right < width) {
      first_column_ = static_cast<JDIMENSION>(left);
      auto columns = static_cast<JDIMENSION>(right - left);
      jpeg_crop_scanline(&jpeg_, &first_column_, &columns);
      const auto mcu = static_cast<JDIMENSION>(jpeg_.min_DCT_scaled_size *
                                               (jpeg_.num_components == 1 ? 1 : jpeg_.max_h_samp_factor));
      huffman_.WantColumns(first_column_ / mcu, (first_column_ + columns + mcu - 1) / mcu);
    }
    if (region_.top > 0) jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(region_.top));
  });
  if (!ok) return guard_.status();
  stride_ = static_cast<size_t>(jpeg_.output_width) * jpeg_.output_components + kernels::kSlackBytes;
  if (strip_.size() < stride_ * kStripRows) strip_.resize(stride_ * kStripRows);
  const bool passed = guard_.Run([&] {
    JSAMPROW row = strip_.data();
    while (static_cast<int>(jpeg_.output_scanline) < region_.top) ReadRows(&row, 1);
  });
  return passed ? absl::OkStatus() : guard_.status();
}

absl::StatusOr<RowBlock> JpegReader::Next() {
  const int wanted = std::min(kStripRows, region_.bottom - static_cast<int>(jpeg_.output_scanline));
  int rows = 0;
  const bool ok = guard_.Run([&] {
    while (rows < wanted) {
      JSAMPROW pointers[kStripRows];
      for (int i = rows; i < wanted; ++i) pointers[i - rows] = strip_.data() + stride_ * i;
      rows += static_cast<int>(ReadRows(pointers, static_cast<JDIMENSION>(wanted - rows)));
    }
  });
  if (!ok) return guard_.status();
  if (jpeg_.out_color_space == JCS_CMYK) {
    for (int i = 0; i < rows; ++i) {
      uint8_t* const row = strip_.data() + stride_ * i;
      RgbxFromInvertedCmyk(row, jpeg_.output_width);
      if (form_ == PixelForm::kGrey) GreyFromRgbx(row, jpeg_.output_width, row);
    }
  }
  const size_t offset = static_cast<size_t>(region_.left - static_cast<int>(first_column_)) * BytesOf(form_);
  return RowBlock{strip_.data() + offset, stride_, rows};
}

absl::StatusOr<bool> JpegReader::Resize(const ResizeAxis& horizontal, const ResizeAxis& vertical, int denominator,
                                        RowSink emit) {
  if (unmarked_) return false;
  bool fits = false;
  bool ok = guard_.Run([&] {
    SetScale(denominator);
    fits = planes_.Aim(&jpeg_, horizontal, vertical);
  });
  if (!ok) return guard_.status();
  if (!fits) return false;
  in_planes_ = true;
  const Region whole{horizontal.begin(), vertical.begin(), horizontal.end(), vertical.end()};
  Region part = whole;
  RETURN_IF_ERROR(UseTiles(&part, denominator));
  ok = guard_.Run([&] {
    SetScale(denominator);
    JpegPlanes::Prepare(&jpeg_);
    StartDecompress();
  });
  if (!ok) return guard_.status();
  if (LacksCoefficients(jpeg_)) {
    in_planes_ = false;
    RETURN_IF_ERROR(ReadHeader(encoded_));
    return false;
  }
  planes_.Start(&jpeg_, whole.left - part.left, whole.top - part.top, taken_over_);
  while (!planes_.done()) {
    if (!guard_.Run([&] { planes_.Read(&jpeg_); })) return guard_.status();
    planes_.Emit(emit);
  }
  return true;
}

absl::Status JpegReader::Finish() {
  // With several scans, all of the file was read before the first row.
  if (jpeg_has_multiple_scans(&jpeg_)) return absl::OkStatus();
  // Other bytes than codes may be an error, wherever they are.
  if (reading_ == JpegReading::kNeeded && taken_over_ && OnlyCodesFollow(encoded_, codes_at_)) return absl::OkStatus();
  const bool ok = guard_.Run([&] {
    if (in_planes_) {
      planes_.Finish(&jpeg_);
      return;
    }
    if (unmarked_ || !taken_over_) {  // row by row, since libjpeg skips no rows where it must ask for more bytes
      JSAMPROW row = strip_.data();
      while (jpeg_.output_scanline < jpeg_.output_height) ReadRows(&row, 1);
      return;
    }
    // Skipping to the very end would stop reading; so the last row is decoded.
    if (jpeg_.output_scanline + 1 < jpeg_.output_height) {
      jpeg_skip_scanlines(&jpeg_, jpeg_.output_height - 1 - jpeg_.output_scanline);
    }
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row = strip_.data();
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
  });
  if (!ok) return guard_.status();
  const bool ended = guard_.Run([&] {
    while (jpeg_finish_decompress(&jpeg_) == FALSE && unmarked_ && pieces_.GiveMore()) continue;
  });
  // All rows are there: what follows them, and does not end, is no damage.
  return ended || guard_.ended_early() ? absl::OkStatus() : guard_.status();
}

}  // namespace

std::unique_ptr<RowReader> MakeJpegReader(JpegReading reading) {
  return std::make_unique<JpegReader>(reading);
}

}  // namespace millrace
