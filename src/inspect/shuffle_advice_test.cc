#include "inspect/shuffle_advice.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

std::string Advice(uint64_t samples, uint64_t classes, double mean_bytes, bool raw = false) {
  return AdviseShuffle({.samples = samples, .classes = classes},
                       OrderPolicy::ForSamples(Shuffle::kWindow, mean_bytes, raw))
      .value_or("");
}

TEST(ShuffleAdvice, WindowsThatMixClassesNeedNone) {
  EXPECT_EQ(Advice(50'000, 10, 30'000), "");                         // ten classes in hundreds of extents
  EXPECT_EQ(Advice(1'281'167, 1000, 115'000), "");                   // ImageNet: 192 extents a window
  EXPECT_EQ(Advice(200, 20, 100), "");                               // all in one window
  EXPECT_EQ(Advice(10'000'000, 21'000, 115'000, /*raw=*/true), "");  // extents of one sample: a global shuffle
}

TEST(ShuffleAdvice, ManyMoreClassesThanExtentsAreNamed) {
  const std::string advice = Advice(14'000'000, 21'000, 115'000);
  EXPECT_NE(advice.find("mixes 192 extents at a time"), std::string::npos) << advice;
  EXPECT_NE(advice.find("of 21000 classes"), std::string::npos) << advice;
  EXPECT_NE(advice.find("about 110 times"), std::string::npos) << advice;
  EXPECT_NE(advice.find("--shuffle global"), std::string::npos) << advice;
}

}  // namespace
}  // namespace millrace
