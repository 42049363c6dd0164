#include "decode/image_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/foreign_bytes.h"
#include "base/hex.h"

namespace millrace {
namespace {

struct Magic {
  size_t offset;
  std::string_view bytes;
  std::string_view name;
};

using std::string_view_literals::operator""sv;

/// Formats that people store as images, to name what cannot be decoded.
constexpr Magic kForeign[] = {
    {4, "ftypavif"sv, "AVIF"},      {4, "ftyphei"sv, "HEIF"},
    {4, "jP  \r\n"sv, "JPEG 2000"}, {4, "JXL \r\n"sv, "JPEG XL"},
    {0, "\xff\x0a"sv, "JPEG XL"},   {0, "II+\0"sv, "BigTIFF"},
    {0, "MM\0+"sv, "BigTIFF"},      {0, "\x76\x2f\x31\x01"sv, "OpenEXR"},
    {4, "ftypmif1"sv, "HEIF"},      {0, "\xff\x4f\xff\x51"sv, "JPEG 2000"},
    {0, "\0\0\1\0"sv, "ICO"},       {0, "\0\0\2\0"sv, "CUR"},
    {0, "qoif"sv, "QOI"},           {0, "8BPS"sv, "PSD"},
    {0, "DDS "sv, "DDS"},           {128, "DICM"sv, "DICOM"},
    {0, "<svg"sv, "SVG"},
};

// Returns whether the text begins with P1 to P7, or with PF or Pf for floats, and a blank.
bool IsNetpbm(std::string_view text) {
  return text.size() >= 3 && text[0] == 'P' && std::string_view("1234567Ff").find(text[1]) != std::string_view::npos &&
         std::string_view(" \t\r\n").find(text[2]) != std::string_view::npos;
}

// Targa has no mark of its own at its beginning: a head of plausible numbers, and one that a cursor cannot have.
bool IsTarga(std::string_view text) {
  constexpr size_t kHead = 18;
  if (text.size() < kHead) return false;
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t kind = byte(2) & 0xf7;  // without the bit of run lengths
  const bool has_map = byte(1) == 1;
  const uint8_t depth = byte(16);
  const bool no_map = text.substr(3, 5) == "\0\0\0\0\0"sv;
  if (byte(2) > 11 || (has_map ? kind != 1 : byte(1) != 0 || (kind != 2 && kind != 3) || !no_map)) return false;
  return (depth == 8 || depth == 15 || depth == 16 || depth == 24 || depth == 32) && text.substr(12, 4) != "\0\0\0\0"sv;
}

// Returns whether the text is XML whose first element is <svg>, as far as its first bytes show.
bool IsSvg(std::string_view text) {
  return text.starts_with("<?xml") && text.substr(0, 2048).find("<svg") != std::string_view::npos;
}

// Returns the name of a format that is known and not decoded; "" for others.
std::string_view ForeignFormat(std::string_view text) {
  if (IsNetpbm(text)) return "Netpbm";
  if (IsSvg(text)) return "SVG";
  if (IsTarga(text)) return "Targa";
  for (const Magic& magic : kForeign) {
    if (text.size() >= magic.offset && text.substr(magic.offset).starts_with(magic.bytes)) return magic.name;
  }
  return {};
}

}  // namespace

absl::StatusOr<ImageFormat> SniffImageFormat(ByteSpan encoded) {
  const std::string_view text = AsText(encoded);
  if (text.starts_with("\xff\xd8\xff"sv)) return ImageFormat::kJpeg;
  if (text.starts_with("\x89PNG\r\n\x1a\n"sv)) return ImageFormat::kPng;
  if (text.starts_with("RIFF"sv) && text.size() >= 12 && text.substr(8, 4) == "WEBP"sv) return ImageFormat::kWebp;
  if (text.starts_with("II*\0"sv) || text.starts_with("MM\0*"sv)) return ImageFormat::kTiff;
  if (text.starts_with("GIF87a"sv) || text.starts_with("GIF89a"sv)) return ImageFormat::kGif;
  if (text.starts_with("BM"sv)) return ImageFormat::kBmp;
  if (const std::string_view foreign = ForeignFormat(text); !foreign.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "cannot decode an image of type {}; Millrace decodes JPEG, PNG, WebP, TIFF, BMP and GIF, so convert "
        "it when packing",
        foreign));
  }
  if (text.empty()) return absl::DataLossError("the image is empty (0 bytes)");
  if (const std::string_view name = NameForeignBytes(encoded); !name.empty()) {
    return absl::DataLossError(
        fmt::format("not an image (JPEG, PNG, WebP, TIFF, BMP or GIF): {} bytes that begin as {}", text.size(), name));
  }
  const auto* first = reinterpret_cast<const uint8_t*>(encoded.data());
  return absl::DataLossError(
      fmt::format("not an image (JPEG, PNG, WebP, TIFF, BMP or GIF): {} bytes that begin with {}", text.size(),
                  HexEncode({first, std::min<size_t>(encoded.size(), 8)})));
}

std::string_view NameOf(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return "JPEG";
    case ImageFormat::kPng:
      return "PNG";
    case ImageFormat::kWebp:
      return "WebP";
    case ImageFormat::kTiff:
      return "TIFF";
    case ImageFormat::kBmp:
      return "BMP";
    case ImageFormat::kGif:
      return "GIF";
  }
  return "";
}

}  // namespace millrace
