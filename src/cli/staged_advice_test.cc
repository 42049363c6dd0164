#include "cli/staged_advice.h"

#include <gtest/gtest.h>

namespace millrace::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(StagedAdvice, IsGivenOnceWhenALongBuildIsSeen) {
  StagedAdvice advice;
  EXPECT_FALSE(advice.Update(0, 200 * kGiB, 1));
  EXPECT_FALSE(advice.Update(kGiB, 200 * kGiB, 10)) << "too little is known";
  EXPECT_EQ(advice.Update(2 * kGiB, 200 * kGiB, 20),
            "indexing takes about 33 min more; --start staged begins after 256 MiB, and indexes the rest meanwhile");
  EXPECT_FALSE(advice.Update(3 * kGiB, 200 * kGiB, 30));
}

TEST(StagedAdvice, IsNotGivenForShortBuilds) {
  StagedAdvice advice;
  EXPECT_FALSE(advice.Update(kGiB / 4, kGiB / 2, 100)) << "few bytes";
  EXPECT_FALSE(advice.Update(kGiB, 50 * kGiB, 1)) << "49 seconds";
  EXPECT_FALSE(advice.Update(2 * kGiB, 50 * kGiB, 100)) << "it was considered";
}

}  // namespace
}  // namespace millrace::cli
