#include "decode/png_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/crypto.h"

namespace millrace {
namespace {

constexpr size_t kPngSignature = 8;
constexpr size_t kPngChunkHead = 8;  // length and type
constexpr size_t kPngChecksum = 4;
constexpr size_t kPaletteEntryBytes = 3;
constexpr uint8_t kPaletteColours = 3;

struct PngChunk {
  std::string_view name;
  ByteSpan payload;
  bool fits = true;  // into the file, and its checksum is right
};

uint32_t PngNumberAt(ByteSpan bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
  return value;
}

void PutPngNumber(uint32_t number, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(number >> shift));
}

void PutPngChunk(std::string_view name, ByteSpan payload, std::string* out) {
  PutPngNumber(static_cast<uint32_t>(payload.size()), out);
  const size_t begin = out->size();
  *out += name;
  *out += AsText(payload);
  PutPngNumber(Crc32(AsBytes(*out).subspan(begin)), out);
}

// Holds the numbers of IHDR that matter here.
struct PngHead {
  uint8_t depth = 0;
  uint8_t colours = 0;

  bool has_palette() const { return colours == kPaletteColours; }
};

PngHead PngHeadOf(ByteSpan payload) {
  constexpr size_t kDepthAt = 8;
  if (payload.size() < kDepthAt + 2) return {};
  return {static_cast<uint8_t>(payload[kDepthAt]), static_cast<uint8_t>(payload[kDepthAt + 1])};
}

bool IsUnknownCritical(std::string_view name) {
  constexpr std::string_view kKnown[] = {"IHDR", "PLTE", "IDAT", "IEND"};
  return absl::ascii_isupper(static_cast<unsigned char>(name[0])) &&
         std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown);
}

// Returns true if Pillow calls the chunk cut off: it has fewer bytes than its meaning takes.
bool IsTooShort(const PngChunk& chunk, const PngHead& head) {
  struct Least {
    std::string_view name;
    size_t bytes;
  };
  constexpr Least kLeast[] = {{"gAMA", 4}, {"cHRM", 32}, {"sRGB", 1}, {"pHYs", 9}, {"acTL", 8}};
  if (chunk.name == "tRNS" && head.colours == 0) return chunk.payload.size() < 2;
  if (chunk.name == "tRNS" && head.colours == 2) return chunk.payload.size() < 6;
  return std::any_of(std::begin(kLeast), std::end(kLeast), [&](const Least& least) {
    return chunk.name == least.name && chunk.payload.size() < least.bytes;
  });
}

// Returns true if a compressed profile or text names a method that does not exist. The method follows a name and a NUL.
bool HasUnknownMethod(const PngChunk& chunk) {
  const std::string_view text = AsText(chunk.payload);
  if (chunk.name == "iCCP") {
    const size_t end = text.find('\0');
    const size_t method = end == std::string_view::npos ? 0 : end + 1;
    return method < text.size() && text[method] != '\0';
  }
  if (chunk.name != "zTXt") return false;
  const size_t end = text.find('\0');
  return end != std::string_view::npos && end + 1 < text.size() && text[end + 1] != '\0';
}

absl::Status CheckPngChunk(const PngChunk& chunk, const PngHead& head) {
  const auto in_name = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  if (!std::all_of(chunk.name.begin(), chunk.name.end(), in_name))
    return absl::DataLossError("the PNG is damaged: the name of a chunk has other characters than letters");
  if (!chunk.fits) return absl::OkStatus();  // spng says what is wrong
  if (IsTooShort(chunk, head))
    return absl::DataLossError(fmt::format("the PNG is damaged: its chunk {} is cut off", chunk.name));
  if (HasUnknownMethod(chunk)) {
    return absl::DataLossError(
        fmt::format("the PNG is damaged: its chunk {} is compressed by an unknown method", chunk.name));
  }
  return absl::OkStatus();
}

// Returns the bytes of a palette that count: whole entries, as many as pixels of that depth can name.
size_t PngPaletteBytes(size_t bytes, const PngHead& head) {
  constexpr size_t kMaxEntries = 256;
  if (bytes > kMaxEntries * kPaletteEntryBytes || head.depth > 8) return bytes;  // spng calls it damaged
  return std::min(bytes / kPaletteEntryBytes, size_t{1} << head.depth) * kPaletteEntryBytes;
}

class PngCopy {
 public:
  explicit PngCopy(ByteSpan encoded) : encoded_(encoded) {}

  absl::StatusOr<std::optional<std::string>> Make();

 private:
  std::optional<PngChunk> Next();
  absl::Status TakeHead(const PngChunk& chunk, size_t begin);
  // Keeps all of the file up to there, with what was changed before.
  void KeepUntil(size_t end);

  ByteSpan encoded_;
  size_t at_ = kPngSignature;
  size_t kept_until_ = 0;
  bool changed_ = false;
  std::string copy_;
  PngHead head_;
};

std::optional<PngChunk> PngCopy::Next() {
  if (encoded_.size() < at_ + kPngChunkHead) return std::nullopt;
  const size_t rest = encoded_.size() - at_ - kPngChunkHead;
  const size_t length = std::min<size_t>(PngNumberAt(encoded_, at_), rest);
  PngChunk chunk{.name = AsText(encoded_.subspan(at_ + 4, 4)),
                 .payload = encoded_.subspan(at_ + kPngChunkHead, length)};
  const bool whole = rest >= length + kPngChecksum;
  const size_t checksum_at = at_ + kPngChunkHead + length;
  chunk.fits = whole && Crc32(encoded_.subspan(at_ + 4, 4 + length)) == PngNumberAt(encoded_, checksum_at);
  at_ = whole ? checksum_at + kPngChecksum : encoded_.size();
  return chunk;
}

void PngCopy::KeepUntil(size_t end) {
  copy_ += AsText(encoded_.subspan(kept_until_, end - kept_until_));
}

absl::Status PngCopy::TakeHead(const PngChunk& chunk, size_t begin) {
  if (begin == kPngSignature && chunk.name == "CgBI") {
    return absl::InvalidArgumentError(
        "cannot decode a PNG that Xcode has changed for iOS (CgBI); take the file that it was made from, or convert it "
        "by `pngcrush -revert-iphone-optimizations`");
  }
  if (chunk.name == "IHDR" && begin == kPngSignature) head_ = PngHeadOf(chunk.payload);
  RETURN_IF_ERROR(CheckPngChunk(chunk, head_));
  if (!chunk.fits) return absl::OkStatus();
  const bool is_palette = chunk.name == "PLTE";
  const size_t bytes = is_palette ? PngPaletteBytes(chunk.payload.size(), head_) : chunk.payload.size();
  const bool cut = is_palette && head_.has_palette() && bytes > 0 && bytes != chunk.payload.size();
  if (!cut && !IsUnknownCritical(chunk.name)) return absl::OkStatus();
  KeepUntil(begin);
  if (cut) PutPngChunk(chunk.name, chunk.payload.first(bytes), &copy_);
  kept_until_ = at_;
  changed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> PngCopy::Make() {
  std::vector<PngChunk> pixels;
  size_t first = 0;
  while (true) {
    const size_t begin = at_;
    const std::optional<PngChunk> chunk = Next();
    if (!chunk) break;
    const bool is_pixels = chunk->name == "IDAT";
    if (!is_pixels && !pixels.empty()) {
      at_ = begin;
      break;
    }
    if (!is_pixels) {
      RETURN_IF_ERROR(TakeHead(*chunk, begin));
      continue;
    }
    if (pixels.empty()) first = begin;
    pixels.push_back(*chunk);
  }
  const bool fit = std::all_of(pixels.begin(), pixels.end(), [](const PngChunk& chunk) { return chunk.fits; });
  if (fit && !changed_) return std::nullopt;
  copy_.reserve(encoded_.size() + 2 * kPngChunkHead);
  if (!fit) {
    KeepUntil(first);
    for (const PngChunk& chunk : pixels) PutPngChunk(chunk.name, chunk.payload, &copy_);
    kept_until_ = at_;
  }
  KeepUntil(encoded_.size());
  return std::optional(std::move(copy_));
}

}  // namespace

absl::StatusOr<std::optional<std::string>> PngAsPillowReadsIt(ByteSpan encoded) {
  return PngCopy(encoded).Make();
}

}  // namespace millrace
