#include "decode/jpeg_target.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "decode/jpeg_encoder.h"
#include "decode/jpeg_tiler.h"

namespace millrace {
namespace {

// The buffer of an encoding is replaced at 4 KiB, 8 KiB, and so on; memory that is freed twice or late is found there.
constexpr size_t kMostMarkerBytes = 65'533;

std::vector<uint8_t> NoiseBytes(size_t count) {
  Rng rng(HashKey(11, {count}));
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  return bytes;
}

TEST(JpegTarget, OwnsItsBytesAtEverySizeAtWhichAnEncodingStops) {
  const std::vector<uint8_t> payload = NoiseBytes(10'000);
  for (unsigned size = 0; size <= payload.size(); ++size) {
    JpegGuard guard;
    JpegTarget to(&guard);
    EXPECT_FALSE(guard.Run([&] {
      to.Create();
      to.jpeg()->image_width = to.jpeg()->image_height = 8;
      to.jpeg()->input_components = 1;
      to.jpeg()->in_color_space = JCS_GRAYSCALE;
      jpeg_set_defaults(to.jpeg());
      jpeg_start_compress(to.jpeg(), TRUE);
      jpeg_write_marker(to.jpeg(), JPEG_COM, payload.data(), size);
      jpeg_finish_compress(to.jpeg());  // the rows are missing
    }));
    EXPECT_TRUE(absl::IsDataLoss(guard.status())) << guard.status();
  }
}

TEST(JpegWriter, MayEndAfterEveryRow) {
  constexpr int kWidth = 64;
  constexpr int kHeight = 300;
  const std::vector<uint8_t> noise = NoiseBytes(size_t{4} * kWidth * kHeight);
  for (int rows = 0; rows <= kHeight; ++rows) {
    JpegWriter writer;
    ASSERT_TRUE(writer.Start(kWidth, kHeight, 4, 95, {}).ok());
    for (int row = 0; row < rows; ++row) ASSERT_TRUE(writer.Put(noise.data() + size_t{4} * kWidth * row).ok());
    if (rows < kHeight) continue;
    const absl::StatusOr<std::string> jpeg = writer.Finish();
    ASSERT_TRUE(jpeg.ok()) << jpeg.status();
    EXPECT_GT(jpeg->size(), 16'384);  // else fewer buffers were replaced than this test is about
    EXPECT_TRUE(jpeg->ends_with("\xFF\xD9"));
  }
}

// Returns a grey JPEG of 8 x 8 pixels. Its one coefficient can be read, and is greater than any that can be written.
std::string WithHugeCoefficient(size_t marker_bytes) {
  const auto segment = [](char marker, const std::string& payload) {
    const size_t size = payload.size() + 2;
    return std::string{'\xFF', marker, static_cast<char>(size >> 8), static_cast<char>(size & 0xFF)} + payload;
  };
  const auto table = [](char id, char symbol) {  // of one code, "0"
    std::string lengths(16, '\0');
    lengths[0] = 1;
    return id + lengths + symbol;
  };
  return "\xFF\xD8" + segment('\xE1', std::string(marker_bytes, 'm')) +
         segment('\xDB', std::string(1, '\0') + std::string(64, '\1')) +
         segment('\xC0', std::string("\x08\0\x08\0\x08\1\1\x11\0", 9)) + segment('\xC4', table('\0', '\x0F')) +
         segment('\xC4', table('\x10', '\0')) + segment('\xDA', std::string("\1\1\0\0\x3F\0", 6)) +
         std::string("\x7F\xFF\0\x7F\xFF\xD9", 6);
}

TEST(TileJpeg, MayFailAfterEverySizeOfMarkers) {
  for (size_t bytes = 0; bytes <= kMostMarkerBytes; bytes += bytes < 20'000 ? 67 : 977) {
    const std::string jpeg = WithHugeCoefficient(bytes);
    const absl::Status status = TileJpeg(AsBytes(jpeg), uint64_t{1} << 20).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find("DCT coefficient"), status.message().npos) << status;
  }
}

}  // namespace
}  // namespace millrace
