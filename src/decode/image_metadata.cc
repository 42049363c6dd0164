#include "decode/image_metadata.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/crypto.h"
#include "base/decompressor.h"
#include "base/hex.h"
#include "decode/jpeg_segments.h"

namespace millrace {
namespace {

using std::string_view_literals::operator""sv;

constexpr size_t kChunkHead = 8;
constexpr std::string_view kExifHead = "Exif\0\0"sv;
constexpr std::string_view kJpegXmpHead = "http://ns.adobe.com/xap/1.0/\0"sv;
// These are the keys of texts in a PNG.
constexpr std::string_view kPngXmpKey = "XML:com.adobe.xmp";
constexpr std::string_view kPngExifKey = "Raw profile type exif";
// These bits are in the flags of a WebP's VP8X.
constexpr uint8_t kWebpProfile = 0x20;
constexpr uint8_t kWebpExif = 0x08;
constexpr uint8_t kWebpXmp = 0x04;

ByteSpan WithoutExifHead(ByteSpan exif) {
  for (int i = 0; i < 2 && AsText(exif).starts_with(kExifHead); ++i) exif = exif.subspan(kExifHead.size());
  return exif;
}

// EXIF data that do not fit into one segment continue in the next one.
void AddExif(ByteSpan payload, MetadataBlock* exif) {
  if (exif->empty()) {
    exif->in_file = WithoutExifHead(payload);
    return;
  }
  if (exif->inflated.empty()) exif->inflated = AsText(exif->in_file);
  exif->inflated += AsText(payload.subspan(kExifHead.size()));
}

ImageMetadata MetadataOfJpeg(ByteSpan jpeg) {
  ImageMetadata found;
  JpegSegments segments(jpeg);
  while (const std::optional<JpegSegment> segment = segments.Next()) {
    if (segment->marker != jpeg_marker::kApp1) continue;
    const std::string_view text = AsText(segment->payload);
    if (text.starts_with(kExifHead)) AddExif(segment->payload, &found.exif);
    if (text.starts_with(kJpegXmpHead)) found.xmp.in_file = segment->payload.subspan(kJpegXmpHead.size());
  }
  return found;
}

// Returns the text in a zlib stream; "" if it is not such a stream, or is longer than Pillow takes.
std::string Inflated(ByteSpan compressed) {
  constexpr size_t kMaxTextBytes = size_t{1} << 20;
  std::string text;
  const auto take = [&text](ByteSpan bytes) {
    text += AsText(bytes);
    return text.size() <= kMaxTextBytes ? absl::OkStatus() : absl::ResourceExhaustedError("too long");
  };
  const std::unique_ptr<Decompressor> zlib = Decompressor::Make(Compression::kZlib);
  const bool whole = zlib->Feed(compressed, take).ok() && zlib->Finish(take).ok();
  return whole ? text : "";
}

// Returns a text chunk of a PNG, if it has that key: tEXt, zTXt or iTXt.
std::optional<MetadataBlock> TextOfPng(const ImageChunk& chunk, std::string_view key) {
  if (chunk.name != "tEXt" && chunk.name != "zTXt" && chunk.name != "iTXt") return std::nullopt;
  const std::string_view all = AsText(chunk.payload);
  if (all.size() <= key.size() || !all.starts_with(key) || all[key.size()] != '\0') return std::nullopt;
  ByteSpan rest = chunk.payload.subspan(key.size() + 1);
  if (chunk.name == "tEXt") return MetadataBlock{.in_file = rest, .inflated = ""};
  bool compressed = true;
  if (chunk.name == "iTXt") {
    if (rest.size() < 2) return std::nullopt;
    compressed = rest[0] != std::byte{0};
    if (compressed && rest[1] != std::byte{0}) return std::nullopt;
    rest = rest.subspan(2);
    for (int i = 0; i < 2; ++i) {  // the language, and the key in this language
      const size_t end = AsText(rest).find('\0');
      if (end == std::string_view::npos) return std::nullopt;
      rest = rest.subspan(end + 1);
    }
  } else {
    if (rest.empty() || rest[0] != std::byte{0}) return std::nullopt;
    rest = rest.subspan(1);
  }
  if (!compressed) return MetadataBlock{.in_file = rest, .inflated = ""};
  MetadataBlock block{.in_file = {}, .inflated = Inflated(rest)};
  return block.empty() ? std::nullopt : std::optional(std::move(block));
}

// ImageMagick writes EXIF into a text like this: after three lines come its bytes in hex digits.
std::string ExifOfRawProfile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return "";
    text.remove_prefix(end + 1);
  }
  std::string digits;
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits),
               [](char c) { return c != '\n' && c != '\r' && c != ' ' && c != '\t'; });
  const std::string exif = HexDecode(digits).value_or("");
  return std::string(AsText(WithoutExifHead(AsBytes(exif))));
}

ImageMetadata MetadataOfPng(ByteSpan png) {
  ImageMetadata found;
  std::string raw_profile;
  ImageChunks chunks(png, ImageFormat::kPng);
  while (const std::optional<ImageChunk> chunk = chunks.Next()) {
    if (chunk->name == "eXIf") found.exif.in_file = WithoutExifHead(chunk->payload);
    if (std::optional<MetadataBlock> xmp = TextOfPng(*chunk, kPngXmpKey)) found.xmp = *std::move(xmp);
    if (const std::optional<MetadataBlock> raw = TextOfPng(*chunk, kPngExifKey))
      raw_profile = ExifOfRawProfile(AsText(raw->bytes()));
  }
  if (found.exif.empty()) found.exif.inflated = std::move(raw_profile);
  return found;
}

uint8_t FlagsOfWebp(ByteSpan webp) {
  constexpr size_t kFlagsAt = 20;
  return webp.size() > kFlagsAt && AsText(webp.subspan(12, 4)) == "VP8X" ? static_cast<uint8_t>(webp[kFlagsAt]) : 0;
}

struct WebpMetadata {
  ByteSpan profile;
  ByteSpan exif;
  ByteSpan xmp;
};

// Follows libwebp: returns the first of each, if the head says that there is one.
WebpMetadata ReadWebp(ByteSpan webp) {
  WebpMetadata found;
  const uint8_t flags = FlagsOfWebp(webp);
  ImageChunks chunks(webp, ImageFormat::kWebp);
  while (const std::optional<ImageChunk> chunk = chunks.Next()) {
    const auto take = [&](std::string_view name, uint8_t flag, ByteSpan* into) {
      if (chunk->name == name && (flags & flag) != 0 && into->empty()) *into = chunk->payload;
    };
    take("ICCP", kWebpProfile, &found.profile);
    take("EXIF", kWebpExif, &found.exif);
    take("XMP ", kWebpXmp, &found.xmp);
  }
  return found;
}

void PutWebpChunk(std::string_view name, std::string_view payload, std::string* out) {
  *out += name;
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(payload.size() >> shift));
  *out += payload;
  if (payload.size() % 2 != 0) out->push_back('\0');
}

}  // namespace

ImageChunks::ImageChunks(ByteSpan encoded, ImageFormat format)
    : encoded_(encoded), png_(format == ImageFormat::kPng), at_(png_ ? 8 : 12) {}

std::optional<ImageChunk> ImageChunks::Next() {
  if (at_ + kChunkHead > encoded_.size()) return std::nullopt;
  const size_t name_at = png_ ? 4 : 0;
  const size_t length_at = png_ ? 0 : 4;
  uint64_t length = 0;
  for (size_t i = 0; i < 4; ++i) {
    length = length << 8 | static_cast<uint64_t>(encoded_[at_ + length_at + (png_ ? i : 3 - i)]);
  }
  if (length > encoded_.size() - at_ - kChunkHead) return std::nullopt;
  const ImageChunk chunk{.name = AsText(encoded_).substr(at_ + name_at, 4),
                         .payload = encoded_.subspan(at_ + kChunkHead, length)};
  at_ += kChunkHead + length + (png_ ? 4 : length % 2);  // a checksum; chunks of an even number of bytes
  if (png_ && chunk.name == "IEND") at_ = encoded_.size();
  return chunk;
}

ImageMetadata MetadataOf(ByteSpan encoded) {
  const absl::StatusOr<ImageFormat> format = SniffImageFormat(encoded);
  if (!format.ok()) return {};
  if (*format == ImageFormat::kJpeg) return MetadataOfJpeg(encoded);
  if (*format == ImageFormat::kPng) return MetadataOfPng(encoded);
  if (*format != ImageFormat::kWebp) return {};
  const WebpMetadata webp = ReadWebp(encoded);
  return {.exif = {.in_file = WithoutExifHead(webp.exif), .inflated = ""},
          .xmp = {.in_file = webp.xmp, .inflated = ""}};
}

std::string ShownChunksOfPng(ByteSpan png) {
  constexpr std::string_view kColours[] = {"iCCP", "sRGB", "gAMA", "cHRM", "cICP"};
  std::string kept;
  ImageChunks chunks(png, ImageFormat::kPng);
  while (const std::optional<ImageChunk> chunk = chunks.Next()) {
    const bool shown = chunk->name == "eXIf" || TextOfPng(*chunk, kPngXmpKey) || TextOfPng(*chunk, kPngExifKey) ||
                       std::find(std::begin(kColours), std::end(kColours), chunk->name) != std::end(kColours);
    if (!shown) continue;
    const auto put_number = [&kept](uint64_t number) {
      for (int shift = 24; shift >= 0; shift -= 8) kept.push_back(static_cast<char>(number >> shift));
    };
    put_number(chunk->payload.size());
    const size_t begin = kept.size();
    kept += chunk->name;
    kept += AsText(chunk->payload);
    put_number(Crc32(AsBytes(kept).subspan(begin)));
  }
  return kept;
}

std::string WithMetadataOfWebp(std::string_view simple, ByteSpan from, uint32_t width, uint32_t height) {
  constexpr size_t kHead = 12;
  const WebpMetadata kept = ReadWebp(from);
  if (kept.profile.empty() && kept.exif.empty() && kept.xmp.empty()) return std::string(simple);
  const int flags = (kept.profile.empty() ? 0 : kWebpProfile) | (kept.exif.empty() ? 0 : kWebpExif) |
                    (kept.xmp.empty() ? 0 : kWebpXmp);
  std::string head(10, '\0');
  head[0] = static_cast<char>(flags);
  for (size_t i = 0; i < 3; ++i) {
    head[4 + i] = static_cast<char>((width - 1) >> 8 * i);
    head[7 + i] = static_cast<char>((height - 1) >> 8 * i);
  }
  std::string chunks;
  PutWebpChunk("VP8X", head, &chunks);
  if (!kept.profile.empty()) PutWebpChunk("ICCP", AsText(kept.profile), &chunks);
  chunks += simple.substr(kHead);
  if (!kept.exif.empty()) PutWebpChunk("EXIF", AsText(kept.exif), &chunks);
  if (!kept.xmp.empty()) PutWebpChunk("XMP ", AsText(kept.xmp), &chunks);
  std::string file;
  PutWebpChunk("RIFF", "WEBP" + chunks, &file);
  return file;
}

}  // namespace millrace
