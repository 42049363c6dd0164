#include "decode/jpeg_huffman.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "decode/jpeg_guard.h"
#include "decode/jpeg_internal.h"
#include "decode/testing/jpeg_both_ways.h"
#include "decode/testing/test_images.h"

namespace millrace {
namespace {

using testing::JpegKind;
using testing::JpegOptions;
using testing::JpegPixels;
using testing::MakeJpeg;
using testing::ReadJpegPixels;

void ExpectSame(JpegHuffman& huffman, const std::string& jpeg, unsigned denominator = 1) {
  const JpegPixels theirs = ReadJpegPixels(AsBytes(jpeg), denominator, nullptr);
  const JpegPixels ours = ReadJpegPixels(AsBytes(jpeg), denominator, &huffman);
  ASSERT_TRUE(theirs.ok) << theirs.status;
  ASSERT_TRUE(ours.ok) << ours.status;
  ASSERT_TRUE(theirs.bytes == ours.bytes);
}

TEST(JpegHuffmanTest, PixelsAreThoseOfLibjpeg) {
  JpegHuffman huffman;  // one, so that nothing may be left of the image before
  for (const JpegKind kind : {JpegKind::kYcc420, JpegKind::kYcc422, JpegKind::kYcc440, JpegKind::kYcc411,
                              JpegKind::kYcc444, JpegKind::kRgb, JpegKind::kGrey, JpegKind::kCmyk, JpegKind::kYcck}) {
    for (const int quality : {1, 40, 92, 100}) {
      for (const int interval : {0, 1, 2, 5, 100}) {
        for (const bool noise : {false, true}) {
          for (const bool optimised : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << static_cast<int>(kind) << ", quality " << quality << ", interval " << interval
                         << (noise ? ", noise" : "") << (optimised ? ", optimised" : ""));
            const JpegOptions options{
                .kind = kind, .quality = quality, .restart_interval = interval, .noise = noise, .optimised = optimised};
            ASSERT_NO_FATAL_FAILURE(ExpectSame(huffman, MakeJpeg(83, 45, options)));
          }
        }
      }
    }
  }
}

TEST(JpegHuffmanTest, ShrunkPixelsAreThoseOfLibjpeg) {
  JpegHuffman huffman;
  for (const unsigned denominator : {1U, 2U, 4U, 8U}) {
    ASSERT_NO_FATAL_FAILURE(ExpectSame(huffman, MakeJpeg(83, 45, {.quality = 97, .noise = true}), denominator));
  }
}

// More bytes than are looked at in one go, and 0xFF in many places.
TEST(JpegHuffmanTest, LargeImagesAreThoseOfLibjpeg) {
  JpegHuffman huffman;
  for (const int interval : {0, 7, 1000}) {
    const std::string jpeg = MakeJpeg(613, 401, {.quality = 100, .restart_interval = interval, .noise = true});
    EXPECT_GT(jpeg.size(), 300'000U);
    ASSERT_NO_FATAL_FAILURE(ExpectSame(huffman, jpeg));
  }
}

TEST(JpegHuffmanTest, OtherCodesAreLeftToLibjpeg) {
  JpegHuffman huffman;
  ExpectSame(huffman, MakeJpeg(83, 45, {.progressive = true}));
  ExpectSame(huffman, MakeJpeg(83, 45, {.arithmetic = true}));
}

// Several bytes 0xFF before a zero or a marker count as one.
TEST(JpegHuffmanTest, FillBytesAreSkipped) {
  JpegHuffman huffman;
  std::string jpeg = MakeJpeg(83, 45, {.restart_interval = 2, .noise = true});
  EXPECT_TRUE(ReadJpegPixels(AsBytes(jpeg), 1, &huffman).sure);
  size_t filled = 0;
  for (size_t at = jpeg.find("\xff\xda"); (at = jpeg.find('\xff', at + 2)) != std::string::npos; at += 2) {
    jpeg.insert(at, 2, '\xff');
    ++filled;
  }
  EXPECT_GT(filled, 10U);
  ExpectSame(huffman, jpeg);
  EXPECT_FALSE(ReadJpegPixels(AsBytes(jpeg), 1, &huffman).sure);
}

// Without restart markers libjpeg reads faster, and makes something else of these.
TEST(JpegHuffmanTest, IsNotSureOfDoubledBytes) {
  JpegHuffman huffman;
  std::string jpeg = MakeJpeg(83, 45, {.quality = 100, .noise = true});
  EXPECT_TRUE(ReadJpegPixels(AsBytes(jpeg), 1, &huffman).sure);
  const size_t zero = jpeg.find(std::string("\xff\0", 2), jpeg.find("\xff\xda"));
  ASSERT_NE(zero, std::string::npos);
  jpeg.insert(zero, 1, '\xff');
  const JpegPixels ours = ReadJpegPixels(AsBytes(jpeg), 1, &huffman);
  EXPECT_TRUE(ours.ok) << ours.status;
  EXPECT_FALSE(ours.sure);
}

// In a libjpeg of another version, something else than its functions is where this one has them.
TEST(JpegHuffmanTest, LeavesALibjpegOfOtherInsidesAlone) {
  const std::string bytes = MakeJpeg(83, 45, {});
  JpegGuard guard;
  jpeg_decompress_struct jpeg{};
  guard.Attach(reinterpret_cast<j_common_ptr>(&jpeg));
  EXPECT_TRUE(guard.Run([&] {
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    JpegHuffman huffman;
    const auto takes_over_with = [&](auto* member, const void* other) {
      const auto before = *member;
      std::memcpy(member, &other, sizeof other);
      const bool taken_over = huffman.TakeOver(&jpeg);
      *member = before;
      return taken_over;
    };
    EXPECT_FALSE(takes_over_with(&jpeg.entropy->decode_mcu, nullptr));
    EXPECT_FALSE(takes_over_with(&jpeg.entropy->decode_mcu, &jpeg));
    EXPECT_FALSE(takes_over_with(&jpeg.entropy->start_pass, &jpeg));
    EXPECT_FALSE(takes_over_with(&jpeg.marker->read_restart_marker, &jpeg));
    EXPECT_TRUE(huffman.TakeOver(&jpeg));
    jpeg_abort_decompress(&jpeg);
  }));
  jpeg_destroy_decompress(&jpeg);
}

TEST(JpegHuffmanTest, FindsTheDamageThatLibjpegFinds) {
  JpegHuffman huffman;
  int damaged = 0;
  int sound = 0;
  int sure = 0;
  for (const JpegOptions& options : {JpegOptions{}, JpegOptions{.quality = 100, .restart_interval = 3, .noise = true},
                                     JpegOptions{.kind = JpegKind::kGrey, .restart_interval = 1}}) {
    const std::string jpeg = MakeJpeg(34, 21, options);
    const auto expect = [&](const std::string& bytes, size_t place) {
      const JpegPixels theirs = ReadJpegPixels(AsBytes(bytes), 1, nullptr);
      const JpegPixels ours = ReadJpegPixels(AsBytes(bytes), 1, &huffman);
      ++(theirs.ok ? sound : damaged);
      if (!ours.sure) return;  // whatever it is, libjpeg decides
      ++sure;
      ASSERT_TRUE(theirs.ok) << place << ": " << theirs.status;
      ASSERT_TRUE(theirs.bytes == ours.bytes) << place;
    };
    for (size_t place = 0; place < jpeg.size(); ++place) {
      for (const int mask : {0x01, 0x10, 0xff}) {
        std::string bytes = jpeg;
        bytes[place] = static_cast<char>(bytes[place] ^ mask);
        ASSERT_NO_FATAL_FAILURE(expect(bytes, place));
      }
      ASSERT_NO_FATAL_FAILURE(expect(jpeg.substr(0, place), place));
    }
  }
  EXPECT_GT(damaged, 100);
  EXPECT_GT(sound, 100);
  EXPECT_GT(sure, 100);
}

}  // namespace
}  // namespace millrace
