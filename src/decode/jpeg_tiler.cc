#include "decode/jpeg_tiler.h"

#include <algorithm>
#include <vector>

#include "decode/jpeg_guard.h"
#include "decode/jpeg_smoothing.h"
#include "decode/jpeg_target.h"
#include "decode/row_reader.h"

namespace millrace {
namespace {

constexpr unsigned kLeastInterval = 4;  // MCUs: less costs more bytes than it saves time

/// Holds the coefficients of a JPEG. They are freed in any case, after the objects that are made of them.
class Coefficients {
 public:
  Coefficients() = default;
  Coefficients(const Coefficients&) = delete;
  Coefficients& operator=(const Coefficients&) = delete;
  ~Coefficients() {
    if (created_) jpeg_destroy_decompress(&jpeg_);
  }

  absl::Status Read(ByteSpan encoded, uint64_t memory_bytes);
  /// Returns true if the coefficients are all that there is to show, and libjpeg does not warn of them.
  bool AreWhole() const { return guard_.warnings() == head_warnings_ && !LacksCoefficients(jpeg_); }
  /// Returns whether one scan may hold the blocks of all components.
  bool CanInterleave() const;
  /// Returns the number of MCUs in a row of a baseline scan.
  unsigned Mcus() const;
  /// If `interval` is 0, there are no restart markers. Several JPEGs may be made from the coefficients, one after the
  /// other.
  absl::StatusOr<std::string> Write(unsigned interval);

 private:
  void CopyMarkers(jpeg_compress_struct* to) const;

  JpegGuard guard_;  // of both objects
  jpeg_decompress_struct jpeg_{};
  jpeg_progress_mgr progress_{};
  bool created_ = false;
  uint64_t head_warnings_ = 0;          // before the first code
  jvirt_barray_ptr* blocks_ = nullptr;  // the decompressor's
};

absl::Status Coefficients::Read(ByteSpan encoded, uint64_t memory_bytes) {
  guard_.Attach(reinterpret_cast<j_common_ptr>(&jpeg_));
  bool ok = guard_.Run([&] {
    jpeg_create_decompress(&jpeg_);
    created_ = true;
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
    constexpr unsigned kAllBytes = 0xFFFF;
    jpeg_save_markers(&jpeg_, JPEG_COM, kAllBytes);
    for (int i = 0; i < 16; ++i) jpeg_save_markers(&jpeg_, JPEG_APP0 + i, kAllBytes);
    jpeg_read_header(&jpeg_, TRUE);
  });
  if (!ok) return guard_.status();
  RETURN_IF_ERROR(CheckImageSize(jpeg_.image_width, jpeg_.image_height));
  head_warnings_ = guard_.warnings();
  ok = guard_.Run([&] {
    jpeg_.mem->max_memory_to_use = static_cast<long>(memory_bytes);
    JpegGuard::LimitScans(&jpeg_, &progress_);
    blocks_ = jpeg_read_coefficients(&jpeg_);
  });
  return ok ? absl::OkStatus() : guard_.status();
}

bool Coefficients::CanInterleave() const {
  int blocks = 0;
  for (int i = 0; i < jpeg_.num_components; ++i) {
    blocks += jpeg_.comp_info[i].h_samp_factor * jpeg_.comp_info[i].v_samp_factor;
  }
  return jpeg_.num_components == 1 || (jpeg_.num_components <= MAX_COMPS_IN_SCAN && blocks <= C_MAX_BLOCKS_IN_MCU);
}

unsigned Coefficients::Mcus() const {
  if (jpeg_.num_components == 1) return jpeg_.comp_info[0].width_in_blocks;
  const auto width = static_cast<unsigned>(DCTSIZE * jpeg_.max_h_samp_factor);
  return (jpeg_.image_width + width - 1) / width;
}

// Copies all markers except those that libjpeg writes itself.
void Coefficients::CopyMarkers(jpeg_compress_struct* to) const {
  const auto begins = [](const jpeg_marker_struct& marker, std::string_view text) {
    return std::string_view(reinterpret_cast<const char*>(marker.data), marker.data_length).starts_with(text);
  };
  using std::string_view_literals::operator""sv;
  for (const jpeg_marker_struct* marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
    if (to->write_JFIF_header && marker->marker == JPEG_APP0 && begins(*marker, "JFIF\0"sv)) continue;
    if (to->write_Adobe_marker && marker->marker == JPEG_APP0 + 14 && begins(*marker, "Adobe"sv)) continue;
    jpeg_write_marker(to, marker->marker, marker->data, marker->data_length);
  }
}

absl::StatusOr<std::string> Coefficients::Write(unsigned interval) {
  JpegTarget to(&guard_);
  jpeg_compress_struct* const jpeg = to.jpeg();
  const bool ok = guard_.Run([&] {
    to.Create();
    jpeg_copy_critical_parameters(&jpeg_, jpeg);
    // A JFIF marker is written only if there was one: a photograph described by EXIF begins with that.
    jpeg->write_JFIF_header = jpeg->write_JFIF_header && jpeg_.saw_JFIF_marker;
    jpeg->optimize_coding = TRUE;
    jpeg->restart_interval = interval;
    jpeg_write_coefficients(jpeg, blocks_);
    CopyMarkers(jpeg);
    jpeg_finish_compress(jpeg);
  });
  if (!ok) return guard_.status();
  return to.TakeBytes();
}

/// Returns the divisors of a row from kLeastInterval on, rising; at least the row itself.
std::vector<unsigned> IntervalsOf(unsigned mcus) {
  std::vector<unsigned> intervals;
  for (unsigned interval = kLeastInterval; interval < mcus; ++interval) {
    if (mcus % interval == 0) intervals.push_back(interval);
  }
  intervals.push_back(mcus);
  return intervals;
}

}  // namespace

absl::StatusOr<std::optional<std::string>> TileJpeg(ByteSpan encoded, uint64_t memory_bytes) {
  const auto most = [](size_t bytes) { return bytes + bytes / 50; };
  Coefficients coefficients;
  RETURN_IF_ERROR(coefficients.Read(encoded, memory_bytes));
  if (!coefficients.AreWhole() || !coefficients.CanInterleave()) return std::nullopt;
  const std::vector<unsigned> intervals = IntervalsOf(coefficients.Mcus());
  ASSIGN_OR_RETURN(std::string tiled, coefficients.Write(intervals.front()));
  if (tiled.size() <= most(encoded.size())) return tiled;
  ASSIGN_OR_RETURN(const std::string plain, coefficients.Write(0));
  const size_t limit = most(std::max(plain.size(), encoded.size()));
  for (size_t i = 1; i < intervals.size() && tiled.size() > limit; ++i) {
    ASSIGN_OR_RETURN(tiled, coefficients.Write(intervals[i]));
  }
  return tiled;
}

}  // namespace millrace
