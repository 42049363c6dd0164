#include "store/s3_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(PartSize, GrowsSoThatTenThousandPartsHoldTerabytes) {
  EXPECT_EQ(PartSize(1), 8 * kMiB);
  EXPECT_EQ(PartSize(1000), 8 * kMiB);
  EXPECT_EQ(PartSize(1001), 16 * kMiB);
  EXPECT_EQ(PartSize(kMaxParts), 1024 * kMiB);
  uint64_t total = 0;
  for (int number = 1; number <= kMaxParts; ++number) {
    EXPECT_GE(PartSize(number), 5 * kMiB);  // less is EntityTooSmall, but for the last part
    EXPECT_GE(PartSize(number), PartSize(std::max(number - 1, 1)));
    total += PartSize(number);
  }
  EXPECT_GT(total, uint64_t{3'900} << 30);
}

TEST(PartSize, MemoryStaysNearAThousandthOfTheObject) {
  uint64_t total = 0;
  for (int number = 1; number <= kMaxParts; ++number) {
    const uint64_t held = PartSize(number) * (PartsInFlight(PartSize(number)) + 1);
    EXPECT_LE(held, std::max<uint64_t>(40 * kMiB, total * 7 / 1000));
    total += PartSize(number);
  }
}

TEST(PartsInFlight, AreAtLeastTwoAndAtMostFour) {
  EXPECT_EQ(PartsInFlight(8 * kMiB), 4);
  EXPECT_EQ(PartsInFlight(16 * kMiB), 2);
  EXPECT_EQ(PartsInFlight(1024 * kMiB), 2);
}

}  // namespace
}  // namespace millrace
