#include "pipeline/distinct_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/rng.h"

namespace millrace {
namespace {

TEST(DistinctCount, IsExactForFewAndCloseForMany) {
  for (const uint64_t different : {0, 1, 100, 4095}) {
    DistinctCount count;
    for (uint64_t i = 0; i < 3 * different; ++i) count.Add(HashKey(i % different, {}));
    EXPECT_EQ(count.Estimate(), different);
  }
  for (const uint64_t different : {5000, 50'000, 400'000}) {
    DistinctCount count;
    for (uint64_t i = 0; i < 2 * different; ++i) count.Add(HashKey(i % different, {}));
    EXPECT_NEAR(static_cast<double>(count.Estimate()), static_cast<double>(different), 0.08 * different);
  }
}

}  // namespace
}  // namespace millrace
