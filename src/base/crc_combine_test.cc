#include "base/crc_combine.h"

#include <gtest/gtest.h>

#include <string>

#include "base/crypto.h"
#include "base/rng.h"

namespace millrace {
namespace {

std::string RandomText(size_t size) {
  Rng rng(11);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.Next());
  return text;
}

TEST(CrcCombine, IsTheCrcOfBothWhereverTheyAreCut) {
  const std::string text = RandomText(5000);
  const ByteSpan all = AsBytes(text);
  for (const size_t cut : {0, 1, 7, 8, 63, 64, 65, 1024, 2500, 4999, 5000}) {
    const ByteSpan a = all.first(cut);
    const ByteSpan b = all.subspan(cut);
    EXPECT_EQ(Crc32Combine(Crc32(a), Crc32(b), b.size()), Crc32(all)) << cut;
    EXPECT_EQ(Crc32cCombine(Crc32c(a), Crc32c(b), b.size()), Crc32c(all)) << cut;
    EXPECT_EQ(Crc64NvmeCombine(Crc64Nvme(a), Crc64Nvme(b), b.size()), Crc64Nvme(all)) << cut;
  }
}

TEST(CrcCombine, TheOrderAndTheLengthCount) {
  const ByteSpan a = AsBytes("one piece");
  const ByteSpan b = AsBytes("another piece");
  EXPECT_NE(Crc32cCombine(Crc32c(b), Crc32c(a), a.size()), Crc32c(AsBytes("one pieceanother piece")));
  EXPECT_NE(Crc32cCombine(Crc32c(a), Crc32c(b), b.size() + 1), Crc32c(AsBytes("one pieceanother piece")));
}

TEST(CrcCombine, NothingChangesNothing) {
  const uint32_t crc = Crc32c(AsBytes("text"));
  EXPECT_EQ(Crc32cCombine(0, crc, 4), crc);
  EXPECT_EQ(Crc32cCombine(crc, 0, 0), crc);
}

TEST(CrcCombine, LengthsNeedNotFitInto32Bits) {
  // Returns the CRC of zeros, which need not be there to be hashed: by doubling.
  const auto zeros = [](uint64_t bytes) {
    uint32_t crc = 0;
    uint32_t piece = Crc32c(AsBytes(std::string(1, '\0')));
    for (uint64_t size = 1; bytes != 0; bytes >>= 1, size *= 2) {
      if ((bytes & 1) != 0) crc = Crc32cCombine(crc, piece, size);
      piece = Crc32cCombine(piece, piece, size);
    }
    return crc;
  };
  const std::string few(100'000, '\0');
  ASSERT_EQ(zeros(few.size()), Crc32c(AsBytes(few)));
  constexpr uint64_t kMany = (uint64_t{1} << 34) + 12345;
  EXPECT_EQ(Crc32cCombine(zeros(777), zeros(kMany), kMany), zeros(kMany + 777));
}

}  // namespace
}  // namespace millrace
