#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "decode/image_readers.h"
#include "decode/resample_kernels.h"

namespace millrace {
namespace {

constexpr uint64_t kFileHead = 14;
constexpr uint32_t kCoreHead = 12;  // of OS/2: smaller numbers, palettes of three bytes
constexpr uint32_t kInfoHead = 40;
constexpr uint64_t kMaskBytes = 12;

enum BmpMethod : uint32_t { kPlain = 0, kRuns8 = 1, kRuns4 = 2, kBitFields = 3, kAlphaBitFields = 6 };

absl::Status BmpDamaged(std::string_view why) {
  return absl::DataLossError(fmt::format("the BMP is damaged: {}", why));
}

/// Describes one colour of pixels of 16 or 32 bits.
struct BitField {
  uint32_t mask = 0;
  int shift = 0;
  uint32_t most = 0;

  static BitField Of(uint32_t mask) {
    if (mask == 0) return {};
    const int shift = std::countr_zero(mask);
    return {mask, shift, mask >> shift};
  }
  uint8_t In(uint32_t pixel) const {
    return most == 0 ? 0 : static_cast<uint8_t>(uint64_t{(pixel & mask) >> shift} * 255 / most);
  }
};

class BmpReader final : public RowReader {
 public:
  absl::StatusOr<ImageSize> Open(ByteSpan encoded) override;
  bool can_shrink() const override { return false; }
  bool may_be_numbers() const override { return bits_ <= 8; }
  uint64_t held_bytes() const override { return has_runs() ? PixelCount() : 0; }
  absl::Status Start(const Region& region, int denominator, PixelForm form) override;
  absl::StatusOr<RowBlock> Next() override;
  absl::Status Finish() override { return absl::OkStatus(); }  // that all rows are there was checked
  void Close() override { std::vector<std::byte>().swap(numbers_); }

 private:
  bool has_runs() const { return method_ == kRuns8 || method_ == kRuns4; }
  uint64_t PixelCount() const { return static_cast<uint64_t>(size_.width) * static_cast<uint64_t>(size_.height); }
  absl::Status ReadRuns();
  bool Has(uint64_t at, uint64_t bytes) const { return at <= encoded_.size() && bytes <= encoded_.size() - at; }
  uint32_t Number(uint64_t at, int bytes) const;
  absl::Status ReadPalette(uint64_t at, uint32_t entry_bytes, uint32_t count);
  absl::Status ReadFields(uint64_t at, uint32_t compression);
  bool HasUsualMasks() const;
  void CorrectPlace(uint32_t head, uint32_t compression, uint32_t colours);
  void Expand(const std::byte* row, uint8_t* to) const;

  ByteSpan encoded_;
  ImageSize size_;
  int bits_ = 0;
  uint32_t method_ = kPlain;
  bool top_down_ = false;
  uint64_t pixels_at_ = 0;
  uint64_t stride_ = 0;
  std::array<std::array<uint8_t, 4>, 256> palette_{};
  std::array<BitField, 3> fields_{};
  Region region_;
  int next_row_ = 0;
  PixelForm form_ = PixelForm::kRgbx;
  std::vector<uint8_t> row_;
  std::vector<std::byte> numbers_;  // of all pixels, where these are stored as runs
};

uint32_t BmpReader::Number(uint64_t at, int bytes) const {
  uint32_t value = 0;
  for (int i = bytes - 1; i >= 0; --i)
    value = value << 8 | static_cast<uint32_t>(encoded_[at + static_cast<uint64_t>(i)]);
  return value;
}

absl::Status BmpReader::ReadPalette(uint64_t at, uint32_t entry_bytes, uint32_t count) {
  const uint32_t most = 1u << bits_;
  if (count == 0 || count > most) count = most;
  palette_ = {};
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t entry = at + uint64_t{i} * entry_bytes;
    // Files without all the entries are read as far as their pixels begin.
    if (entry + entry_bytes > pixels_at_) break;
    if (!Has(entry, entry_bytes)) return BmpDamaged("it ends within its palette");
    for (uint64_t c = 0; c < 3; ++c) palette_[i][c] = static_cast<uint8_t>(encoded_[entry + 2 - c]);
  }
  return absl::OkStatus();
}

// Returns true if the masks put the colours of 24 bits where they are without masks.
bool BmpReader::HasUsualMasks() const {
  constexpr uint64_t kMasksAt = kFileHead + kInfoHead;
  return Has(kMasksAt, kMaskBytes) && Number(kMasksAt, 4) == 0xff0000 && Number(kMasksAt + 4, 4) == 0xff00 &&
         Number(kMasksAt + 8, 4) == 0xff;
}

absl::Status BmpReader::ReadFields(uint64_t at, uint32_t compression) {
  if (compression == kPlain) {
    const bool five_bits = bits_ == 16;
    fields_ = {BitField::Of(five_bits ? 0x7c00 : 0xff0000), BitField::Of(five_bits ? 0x3e0 : 0xff00),
               BitField::Of(five_bits ? 0x1f : 0xff)};
    return absl::OkStatus();
  }
  if (!Has(at, kMaskBytes)) return BmpDamaged("it ends within its head");
  if (Number(at, 4) == 0 && Number(at + 4, 4) == 0 && Number(at + 8, 4) == 0) return ReadFields(at, kPlain);
  for (size_t c = 0; c < 3; ++c) {
    const uint32_t mask = Number(at + 4 * c, 4);
    const BitField field = BitField::Of(mask);
    if ((field.most & (field.most + 1)) != 0) return BmpDamaged("the bits of a colour are not consecutive");
    fields_[c] = field;
  }
  return absl::OkStatus();
}

// Finds the pixels where Pillow looks for them if the file says 0, or gives the position of the palette instead.
void BmpReader::CorrectPlace(uint32_t head, uint32_t compression, uint32_t colours) {
  const uint64_t head_end = kFileHead + head;
  const uint64_t entry_bytes = head == kCoreHead ? 3 : 4;
  const uint64_t entries = bits_ > 8 ? 0 : colours != 0 ? colours : uint64_t{1} << bits_;
  const uint64_t palette_bytes = entries * entry_bytes;
  const bool has_masks = head == kInfoHead && (compression == kBitFields || compression == kAlphaBitFields);
  if (pixels_at_ == 0) {
    pixels_at_ = head_end + (has_masks ? kMaskBytes : 0) + palette_bytes;
  } else if (pixels_at_ == head_end) {
    pixels_at_ += palette_bytes;
  }
}

absl::StatusOr<ImageSize> BmpReader::Open(ByteSpan encoded) {
  encoded_ = encoded;
  if (!Has(0, kFileHead + kCoreHead)) return BmpDamaged("it ends within its head");
  pixels_at_ = Number(10, 4);
  const uint32_t head = Number(kFileHead, 4);
  const bool core = head == kCoreHead;
  if (!core && (head < kInfoHead || !Has(kFileHead, head))) return BmpDamaged("its head is of no known size");
  const uint64_t at = kFileHead + 4;
  int64_t width = 0;
  int64_t height = 0;
  uint32_t compression = kPlain;
  uint32_t colours = 0;
  if (core) {
    width = Number(at, 2);
    height = Number(at + 2, 2);
    bits_ = static_cast<int>(Number(at + 6, 2));
  } else {
    width = static_cast<int32_t>(Number(at, 4));
    height = static_cast<int32_t>(Number(at + 4, 4));
    bits_ = static_cast<int>(Number(at + 10, 2));
    compression = Number(at + 12, 4);
    colours = Number(at + 28, 4);
  }
  top_down_ = height < 0;
  height = top_down_ ? -height : height;
  RETURN_IF_ERROR(CheckImageSize(width, height));
  size_ = {static_cast<int>(width), static_cast<int>(height)};
  CorrectPlace(head, compression, colours);
  const bool wide = bits_ == 16 || bits_ == 32;
  if (bits_ == 24 && compression == kBitFields && HasUsualMasks()) compression = kPlain;
  const bool fields = compression == kBitFields || compression == kAlphaBitFields;
  method_ = compression;
  if (has_runs() && bits_ == (compression == kRuns8 ? 8 : 4)) {
    RETURN_IF_ERROR(ReadPalette(kFileHead + head, 4, colours));
    bits_ = 8;  // as they are held
    stride_ = static_cast<uint64_t>(width);
    return size_;
  }
  if ((compression != kPlain && !fields) || (fields && !wide)) {
    return absl::InvalidArgumentError(
        fmt::format("cannot decode a compressed BMP (method {}); store it without compression or as PNG", compression));
  }
  if (bits_ == 1 || bits_ == 4 || bits_ == 8) {
    RETURN_IF_ERROR(ReadPalette(kFileHead + head, core ? 3 : 4, colours));
  } else if (wide) {
    // They follow the head of 40 bytes; larger heads have them at the same place.
    RETURN_IF_ERROR(ReadFields(kFileHead + kInfoHead, compression));
  } else if (bits_ != 24) {
    return absl::InvalidArgumentError(
        fmt::format("cannot decode a BMP of {} bits a pixel; convert it when packing", bits_));
  }
  stride_ = (static_cast<uint64_t>(width) * static_cast<uint64_t>(bits_) + 31) / 32 * 4;
  // The last row does not need its padding, as in Pillow.
  const uint64_t last_row = (static_cast<uint64_t>(width) * static_cast<uint64_t>(bits_) + 7) / 8;
  if (!Has(pixels_at_, stride_ * static_cast<uint64_t>(height - 1) + last_row))
    return BmpDamaged("it ends within its pixels");
  return size_;
}

// Reads the numbers of all pixels, by Pillow's reading of damaged runs.
absl::Status BmpReader::ReadRuns() {
  const uint64_t count = PixelCount();
  const auto width = static_cast<uint64_t>(size_.width);
  const bool halves = method_ == kRuns4;
  numbers_.clear();
  numbers_.reserve(count + width);
  uint64_t at = pixels_at_;
  uint64_t x = 0;
  const auto put = [&](uint64_t number, uint64_t from) {  // pixels, from a byte or half a byte each
    for (uint64_t i = 0; i < number; ++i) {
      const std::byte byte = encoded_[from + (halves ? i / 2 : i)];
      numbers_.push_back(!halves ? byte : i % 2 == 0 ? byte >> 4 : byte & std::byte{15});
    }
  };
  while (numbers_.size() < count && Has(at, 2)) {
    const auto length = std::to_integer<uint64_t>(encoded_[at]);
    const auto second = std::to_integer<uint64_t>(encoded_[at + 1]);
    at += 2;
    if (length > 0) {
      const uint64_t run = std::min(length, width - std::min(x, width));
      for (uint64_t i = 0; i < run; ++i)
        numbers_.push_back(static_cast<std::byte>(!halves ? second : i % 2 == 0 ? second >> 4 : second & 15));
      x += run;
    } else if (second == 0) {  // the end of a row
      numbers_.resize((numbers_.size() + width - 1) / width * width);
      x = 0;
    } else if (second == 1) {  // the end of the picture
      break;
    } else if (second == 2) {  // a step to the right and up
      if (!Has(at, 2)) break;
      const uint64_t step =
          std::to_integer<uint64_t>(encoded_[at]) + std::to_integer<uint64_t>(encoded_[at + 1]) * width;
      at += 2;
      numbers_.resize(numbers_.size() + std::min(count - numbers_.size(), step));
      x = numbers_.size() % width;
    } else {  // pixels one by one, to an even number of bytes
      const uint64_t pixels = std::min(count - numbers_.size(), second);
      const uint64_t bytes = halves ? (pixels + 1) / 2 : pixels;
      if (!Has(at, bytes)) break;
      put(pixels, at);
      x += second;
      at += bytes;
      at += at % 2;
    }
  }
  return numbers_.size() >= count ? absl::OkStatus() : BmpDamaged("it ends within its pixels");
}

absl::Status BmpReader::Start(const Region& region, int /*denominator*/, PixelForm form) {
  if (form == PixelForm::kNumbers && bits_ > 8) return NotNumbers("a BMP in colour");
  region_ = region;
  form_ = form;
  next_row_ = region.top;
  row_.resize(static_cast<size_t>(size_.width) * 4 + kernels::kSlackBytes);
  return has_runs() ? ReadRuns() : absl::OkStatus();
}

// Expands the columns of the region, to the beginning of a row.
void BmpReader::Expand(const std::byte* row, uint8_t* to) const {
  for (int x = region_.left; x < region_.right; ++x) {
    if (bits_ <= 8) {
      const auto bit = static_cast<unsigned>(x) * static_cast<unsigned>(bits_);
      const auto byte = static_cast<unsigned>(row[bit / 8]);
      const unsigned index = byte >> (8 - static_cast<unsigned>(bits_) - bit % 8) & ((1u << bits_) - 1);
      if (form_ == PixelForm::kNumbers) {
        *to++ = static_cast<uint8_t>(index);
        continue;
      }
      std::memcpy(to, palette_[index].data(), 4);
    } else if (bits_ == 24) {
      for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(row[3 * x + 2 - c]);
    } else {
      const uint32_t pixel = bits_ == 16 ? LoadLe<uint16_t>(row + 2 * x) : LoadLe<uint32_t>(row + 4 * x);
      for (size_t c = 0; c < 3; ++c) to[c] = fields_[c].In(pixel);
    }
    to += 4;
  }
}

absl::StatusOr<RowBlock> BmpReader::Next() {
  const int stored = top_down_ ? next_row_ : size_.height - 1 - next_row_;
  ++next_row_;
  const std::byte* const pixels = has_runs() ? numbers_.data() : encoded_.data() + pixels_at_;
  Expand(pixels + stride_ * static_cast<uint64_t>(stored), row_.data());
  if (form_ == PixelForm::kGrey) {
    GreyFromRgbx(row_.data(), static_cast<size_t>(region_.right - region_.left), row_.data());
  }
  return RowBlock{row_.data(), row_.size(), 1};
}

}  // namespace

std::unique_ptr<RowReader> MakeBmpReader() {
  return std::make_unique<BmpReader>();
}

}  // namespace millrace
