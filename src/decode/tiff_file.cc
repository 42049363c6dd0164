#include "decode/tiff_file.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "decode/row_reader.h"

namespace millrace {
namespace {

tmsize_t ReadTiff(thandle_t handle, void* into, tmsize_t size) {
  auto& file = *static_cast<TiffFile*>(handle);
  const uint64_t left = file.bytes.size() - std::min<uint64_t>(file.position, file.bytes.size());
  const uint64_t bytes = std::min<uint64_t>(left, static_cast<uint64_t>(std::max<tmsize_t>(size, 0)));
  std::memcpy(into, file.bytes.data() + (file.bytes.size() - left), bytes);
  file.position += bytes;
  return static_cast<tmsize_t>(bytes);
}

tmsize_t WriteTiff(thandle_t /*handle*/, void* /*from*/, tmsize_t /*size*/) {
  return 0;
}

toff_t SeekTiff(thandle_t handle, toff_t offset, int whence) {
  auto& file = *static_cast<TiffFile*>(handle);
  const uint64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.position : file.bytes.size();
  file.position = base + offset;
  return file.position;
}

int CloseTiff(thandle_t /*handle*/) {
  return 0;
}

toff_t SizeOfTiff(thandle_t handle) {
  return static_cast<TiffFile*>(handle)->bytes.size();
}

int MapTiff(thandle_t handle, void** base, toff_t* size) {
  const ByteSpan bytes = static_cast<TiffFile*>(handle)->bytes;
  *base = const_cast<std::byte*>(bytes.data());  // read only, as the file is opened for reading
  *size = bytes.size();
  return 1;
}

void UnmapTiff(thandle_t /*handle*/, void* /*base*/, toff_t /*size*/) {}

int KeepError(TIFF* /*tiff*/, void* file, const char* /*module*/, const char* format, va_list arguments) {
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  auto& error = static_cast<TiffFile*>(file)->error;
  if (error.empty()) error = text.data();
  return 1;
}

// The warnings are of unknown tags and the like, which most writers of TIFF files leave.
int IgnoreWarning(TIFF* /*tiff*/, void* /*file*/, const char* /*module*/, const char* /*format*/, va_list /*all*/) {
  return 1;
}

// Returns the number at that place, in the byte order of the file.
uint32_t NumberAt(ByteSpan file, uint64_t at, size_t bytes) {
  const bool from_high = file[0] == std::byte{'M'};
  uint32_t number = 0;
  for (size_t i = 0; i < bytes; ++i) {
    number = number << 8 | std::to_integer<uint32_t>(file[at + (from_high ? i : bytes - 1 - i)]);
  }
  return number;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TIFF, CloseTiffFile>> OpenTiff(TiffFile* file) {
  TIFFOpenOptions* const options = TIFFOpenOptionsAlloc();
  if (options == nullptr) return absl::ResourceExhaustedError("out of memory while decoding a TIFF");
  TIFFOpenOptionsSetMaxSingleMemAlloc(options, static_cast<tmsize_t>(kMaxCodecBytes));
  TIFFOpenOptionsSetErrorHandlerExtR(options, KeepError, file);
  TIFFOpenOptionsSetWarningHandlerExtR(options, IgnoreWarning, file);
  std::unique_ptr<TIFF, CloseTiffFile> tiff(TIFFClientOpenExt("image", "r", file, ReadTiff, WriteTiff, SeekTiff,
                                                              CloseTiff, SizeOfTiff, MapTiff, UnmapTiff, options));
  TIFFOpenOptionsFree(options);
  return tiff;
}

bool IsBoundedMethod(uint16_t compression) {
  constexpr std::array<uint16_t, 10> kBounded = {
      COMPRESSION_NONE, COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3,     COMPRESSION_CCITTFAX4, COMPRESSION_LZW,
      COMPRESSION_JPEG, COMPRESSION_PACKBITS, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE,   COMPRESSION_ZSTD};
  return std::find(kBounded.begin(), kBounded.end(), compression) != kBounded.end();
}

bool SaysPalette(ByteSpan file) {
  if (file.size() < 8) return false;
  uint64_t at = NumberAt(file, 4, 4);
  if (at + 2 > file.size()) return false;
  uint32_t entries = NumberAt(file, at, 2);
  for (at += 2; entries > 0 && at + 12 <= file.size(); --entries, at += 12) {
    if (NumberAt(file, at, 2) != TIFFTAG_PHOTOMETRIC) continue;
    const size_t bytes = NumberAt(file, at + 2, 2) == TIFF_LONG ? 4 : 2;
    return NumberAt(file, at + 8, bytes) == PHOTOMETRIC_PALETTE;
  }
  return false;
}

}  // namespace millrace
