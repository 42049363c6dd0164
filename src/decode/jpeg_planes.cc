#include "decode/jpeg_planes.h"

#include <algorithm>
#include <cstring>

#include "decode/jpeg_internal.h"

namespace millrace {
namespace {

static_assert(sizeof(JCOEF) == sizeof(int16_t));

int PlanesDivideUp(int a, int b) {
  return (a + b - 1) / b;
}

/// Returns how many pixels there are to a sample of a component in one direction: 1 or 2; 0 for anything else.
int PixelsToSample(int most, int scaled, int factor, int component_scaled) {
  for (const int pixels : {1, 2}) {
    if (most * scaled == pixels * factor * component_scaled) return pixels;
  }
  return 0;
}

}  // namespace

bool JpegPlanes::Aim(jpeg_decompress_struct* jpeg, const ResizeAxis& horizontal, const ResizeAxis& vertical) {
  if (jpeg->num_components != static_cast<int>(kPlanes) || jpeg->jpeg_color_space != JCS_YCbCr) return false;
  if (jpeg->data_precision != BITS_IN_JSAMPLE) return false;
#if LIBJPEG_TURBO_VERSION_NUMBER >= 2001090
  if (jpeg->master->lossless) return false;
#endif
  jpeg_calc_output_dimensions(jpeg);
  const jpeg_component_info& luma = jpeg->comp_info[0];
  const jpeg_component_info& chroma = jpeg->comp_info[1];
  const jpeg_component_info& other = jpeg->comp_info[2];
  if (luma.h_samp_factor != jpeg->max_h_samp_factor || luma.v_samp_factor != jpeg->max_v_samp_factor) return false;
  if (luma.DCT_scaled_size != jpeg->min_DCT_scaled_size) return false;
  if (chroma.h_samp_factor != other.h_samp_factor || chroma.v_samp_factor != other.v_samp_factor) return false;
  const int scaled = jpeg->min_DCT_scaled_size;
  const int x = PixelsToSample(jpeg->max_h_samp_factor, scaled, chroma.h_samp_factor, chroma.DCT_scaled_size);
  const int y = PixelsToSample(jpeg->max_v_samp_factor, scaled, chroma.v_samp_factor, chroma.DCT_scaled_size);
  if (x == 0 || y == 0) return false;
  // In these, libjpeg repeats samples and does not smooth.
  constexpr JDIMENSION kNarrow = 2;
  if (scaled == 1 && (x == 2 || y == 2)) return false;
  if (x == 2 && chroma.downsampled_width <= kNarrow) return false;

  if (x == 2) halved_horizontal_.BuildHalved(horizontal, static_cast<int>(chroma.downsampled_width));
  if (y == 2) halved_vertical_.BuildHalved(vertical, static_cast<int>(chroma.downsampled_height));
  vertical_ = &vertical;
  size_t bytes = 0;
  for (size_t i = 0; i < kPlanes; ++i) {
    const jpeg_component_info& component = jpeg->comp_info[i];
    Plane& plane = planes_[i];
    plane.horizontal = i > 0 && x == 2 ? &halved_horizontal_ : &horizontal;
    plane.vertical = i > 0 && y == 2 ? &halved_vertical_ : &vertical;
    plane.mcu_width = component.h_samp_factor * component.DCT_scaled_size;
    plane.mcu_height = component.v_samp_factor * component.DCT_scaled_size;
    // This is no less than Reserve takes, wherever the MCUs begin.
    const int width = plane.horizontal->end() - plane.horizontal->begin() + 4 * plane.mcu_width;
    const int height = plane.vertical->taps() + 3 * plane.mcu_height + kBlockSide;
    bytes += (static_cast<size_t>(width) + kernels::kSlackBytes) * static_cast<size_t>(height);
  }
  return bytes <= kMostBytes;
}

void JpegPlanes::Prepare(jpeg_decompress_struct* jpeg) {
  jpeg->raw_data_out = TRUE;
}

void JpegPlanes::Start(jpeg_decompress_struct* jpeg, int left, int top, bool skips) {
  skips_ = skips;
  mcu_columns_ = PlanesDivideUp(static_cast<int>(jpeg->image_width), jpeg->max_h_samp_factor * DCTSIZE);
  mcu_rows_ = static_cast<int>(jpeg->total_iMCU_rows);
  mcu_row_ = next_ = 0;
  first_mcu_ = mcu_columns_;
  first_mcu_row_ = mcu_rows_;
  end_mcu_ = 0;
  for (Plane& plane : planes_) {
    // Tiles begin with an MCU, so that these are whole numbers.
    plane.first_column = left / planes_[0].mcu_width * plane.mcu_width;
    plane.first_row = top / planes_[0].mcu_height * plane.mcu_height;
    first_mcu_ = std::min(first_mcu_, (plane.horizontal->begin() - plane.first_column) / plane.mcu_width);
    end_mcu_ = std::max(end_mcu_, PlanesDivideUp(plane.horizontal->end() - plane.first_column, plane.mcu_width));
    first_mcu_row_ = std::min(first_mcu_row_, (plane.vertical->begin() - plane.first_row) / plane.mcu_height);
  }
  end_mcu_ = std::min(end_mcu_, mcu_columns_);
  SizeRings();
  for (Plane& plane : planes_) Reserve(&plane);
  const size_t out = static_cast<size_t>(planes_[0].horizontal->outputs()) * 4 + kernels::kSlackBytes;
  if (out_.size() < out) out_.resize(out);
}

// A ring holds the rows from the first that a row of the output needs to the last that is read before that is made.
void JpegPlanes::SizeRings() {
  for (Plane& plane : planes_) plane.ring_rows = plane.mcu_height;
  for (int y = 0; y < vertical_->outputs(); ++y) {
    int mcu_rows = 0;
    for (const Plane& plane : planes_) {
      const int end = plane.vertical->first(y) + plane.vertical->taps() - plane.first_row;
      mcu_rows = std::max(mcu_rows, PlanesDivideUp(end, plane.mcu_height));
    }
    for (Plane& plane : planes_) {
      const int begin = plane.vertical->first(y) - plane.first_row;
      plane.ring_rows = std::max(plane.ring_rows, mcu_rows * plane.mcu_height - begin);
    }
  }
}

void JpegPlanes::Reserve(Plane* plane) const {
  plane->first_column += first_mcu_ * plane->mcu_width;
  plane->stride = static_cast<size_t>((end_mcu_ - first_mcu_) * plane->mcu_width) + kernels::kSlackBytes;
  const size_t bytes = plane->stride * static_cast<size_t>(plane->ring_rows);
  if (plane->ring.size() < bytes) plane->ring.resize(bytes);
  plane->taps.resize(static_cast<size_t>(PlanesDivideUp(plane->vertical->taps(), 2) * 2));
  const auto columns = static_cast<size_t>(plane->horizontal->end() - plane->horizontal->begin());
  plane->blended.resize(std::max(plane->blended.size(), columns + kernels::kSlackBytes));
  const auto outputs = static_cast<size_t>(plane->horizontal->outputs());
  plane->resized.resize(std::max(plane->resized.size(), outputs + kernels::kSlackBytes));
}

// Transforms a block of a component: x and y count the blocks of the current MCUs.
void JpegPlanes::Transform(jpeg_decompress_struct* jpeg, size_t component, int16_t* block, int x, int y) {
  jpeg_component_info& info = jpeg->comp_info[component];
  const int side = info.DCT_scaled_size;
  (*jpeg->idct->inverse_DCT[component])(jpeg, &info, block, planes_[component].rows.data() + y * side,
                                        static_cast<JDIMENSION>(x * side));
}

// Reads the codes of a single scan, which come MCU by MCU.
void JpegPlanes::ReadCodes(jpeg_decompress_struct* jpeg) {
  std::array<JBLOCKROW, kMostBlocks> pointers{};
  for (size_t i = 0; i < pointers.size(); ++i) {
    pointers[i] = reinterpret_cast<JBLOCKROW>(blocks_.data() + i * DCTSIZE2);
  }
  const bool row_needed = mcu_row_ >= first_mcu_row_ && !done();
  for (int column = 0; column < mcu_columns_; ++column) {
    const bool needed = row_needed && column >= first_mcu_ && column < end_mcu_;
    if (!needed && skips_) {
      (*jpeg->entropy->decode_mcu)(jpeg, nullptr);
      continue;
    }
    std::memset(blocks_.data(), 0, static_cast<size_t>(jpeg->blocks_in_MCU) * sizeof(JBLOCK));
    (*jpeg->entropy->decode_mcu)(jpeg, pointers.data());
    if (!needed) continue;
    int16_t* block = blocks_.data();
    for (int i = 0; i < jpeg->comps_in_scan; ++i) {
      const jpeg_component_info& info = *jpeg->cur_comp_info[i];
      const auto component = static_cast<size_t>(info.component_index);
      for (int y = 0; y < info.MCU_height; ++y) {
        for (int x = 0; x < info.MCU_width; ++x, block += DCTSIZE2) {
          Transform(jpeg, component, block, (column - first_mcu_) * info.MCU_width + x, y);
        }
      }
    }
  }
}

// Reads the coefficients of several scans, which were read before.
void JpegPlanes::ReadCoefficients(jpeg_decompress_struct* jpeg) {
  if (mcu_row_ < first_mcu_row_) return;
  for (size_t i = 0; i < kPlanes; ++i) {
    const jpeg_component_info& component = jpeg->comp_info[i];
    const auto height = static_cast<JDIMENSION>(component.v_samp_factor);
    JBLOCKARRAY const rows =
        (*jpeg->mem->access_virt_barray)(reinterpret_cast<j_common_ptr>(jpeg), jpeg->coef->coef_arrays[i],
                                         static_cast<JDIMENSION>(mcu_row_) * height, height, FALSE);
    for (int y = 0; y < component.v_samp_factor; ++y) {
      const int first = first_mcu_ * component.h_samp_factor;
      const int end = std::min(end_mcu_ * component.h_samp_factor, static_cast<int>(component.width_in_blocks));
      for (int x = first; x < end; ++x) Transform(jpeg, i, rows[y][x], x - first, y);
    }
  }
}

void JpegPlanes::Read(jpeg_decompress_struct* jpeg) {
  for (Plane& plane : planes_) {
    for (int y = 0; y < plane.mcu_height; ++y) {
      const int row = (mcu_row_ * plane.mcu_height + y) % plane.ring_rows;
      plane.rows[static_cast<size_t>(y)] = plane.ring.data() + plane.stride * static_cast<size_t>(row);
    }
  }
  if (jpeg->inputctl->has_multiple_scans) {
    ReadCoefficients(jpeg);
  } else {
    ReadCodes(jpeg);
  }
  ++mcu_row_;
}

bool JpegPlanes::Ready(const Plane& plane) const {
  return plane.vertical->first(next_) + plane.vertical->taps() - plane.first_row <= mcu_row_ * plane.mcu_height;
}

// Resizes vertically first, by instructions that take many columns at a time, so that fewer rows are left for the other
// direction.
void JpegPlanes::Resize(Plane* plane) {
  const ResizeAxis& horizontal = *plane->horizontal;
  const ResizeAxis& vertical = *plane->vertical;
  const auto column = static_cast<size_t>(horizontal.begin() - plane->first_column);
  int row = (vertical.first(next_) - plane->first_row) % plane->ring_rows;
  for (int k = 0; k < vertical.taps(); ++k) {
    plane->taps[static_cast<size_t>(k)] = plane->ring.data() + plane->stride * static_cast<size_t>(row) + column;
    if (++row == plane->ring_rows) row = 0;
  }
  if (vertical.taps() % 2 != 0) plane->taps.back() = plane->taps.front();  // its weight is 0
  kernels::BlendByteRows(plane->taps.data(), vertical.weights(next_), static_cast<int>(plane->taps.size()),
                         static_cast<size_t>(horizontal.end() - horizontal.begin()), plane->blended.data());
  kernels::ResizeRowNumbers(plane->blended.data(), horizontal.view(), plane->resized.data());
}

void JpegPlanes::Emit(RowSink emit) {
  while (!done() && std::all_of(planes_.begin(), planes_.end(), [&](const Plane& each) { return Ready(each); })) {
    for (Plane& plane : planes_) Resize(&plane);
    kernels::RgbxFromYcc(planes_[0].resized.data(), planes_[1].resized.data(), planes_[2].resized.data(),
                         static_cast<size_t>(planes_[0].horizontal->outputs()), out_.data());
    emit(next_, out_.data());
    ++next_;
  }
}

void JpegPlanes::Finish(jpeg_decompress_struct* jpeg) {
  for (; mcu_row_ < mcu_rows_; ++mcu_row_) ReadCodes(jpeg);
  // libjpeg does this itself after the last row.
  (*jpeg->inputctl->finish_input_pass)(jpeg);
  jpeg->output_scanline = jpeg->output_height;
}

}  // namespace millrace
