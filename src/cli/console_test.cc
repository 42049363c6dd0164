#include "cli/console.h"

#include <gtest/gtest.h>

namespace millrace::cli {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(ProgressText, TellsNoRateBeforeItMeansSomething) {
  EXPECT_EQ(ProgressText("packing", 512, 227 * kMiB, 0.026, true), "packing 512 B of 227.0 MiB");
  EXPECT_EQ(ProgressText("packing", 0, 227 * kMiB, 5, true), "packing 0 B of 227.0 MiB");
  EXPECT_EQ(ProgressText("packing", 4 * kMiB, 200 * kMiB, 0.5, true),
            "packing 4.0 MiB of 200.0 MiB, 8.0 MiB/s, 24 s left");
  EXPECT_EQ(ProgressText("packing", kMiB, 1001 * kMiB, 2, true),
            "packing 1.0 MiB of 1001.0 MiB, 512.0 KiB/s, 33 min left");
  EXPECT_EQ(ProgressText("packing", 3 * kMiB, 3 * kMiB, 1, true), "packing 3.0 MiB of 3.0 MiB, 3.0 MiB/s");
}

TEST(ProgressText, WithoutATotal) {
  EXPECT_EQ(ProgressText("listing", 100, 0, 1, false), "listing 100");
  EXPECT_EQ(ProgressText("listing", 100, 0, 4, false), "listing 100, 25/s");
}

}  // namespace
}  // namespace millrace::cli
