#include "pipeline/program_waits.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

ProgramWaits::Time AtSecond(int seconds) {
  return ProgramWaits::Time(std::chrono::seconds(seconds));
}

TEST(ProgramWaits, AWaitThatLastsCountsAlready) {
  ProgramWaits waits("device");
  EXPECT_EQ(waits.work(), "device");
  waits.Begin(true, AtSecond(10));
  EXPECT_EQ(waits.Take(AtSecond(13)).work, 3);
  const ProgramWaits::Seconds more = waits.Take(AtSecond(14));
  EXPECT_EQ(more.work, 1);
  EXPECT_EQ(more.elapsed, 1);
  waits.End(AtSecond(15));
  waits.Begin(false, AtSecond(16));
  waits.End(AtSecond(18));
  const ProgramWaits::Seconds rest = waits.Take(AtSecond(100));
  EXPECT_EQ(rest.work, 1);
  EXPECT_EQ(rest.data, 2);
  EXPECT_EQ(rest.elapsed, 4) << "until the last call";
}

TEST(ProgramWaits, TimeAfterTheFinishCountsFromTheNextCall) {
  ProgramWaits waits("transform");
  waits.Call(AtSecond(1));
  waits.Call(AtSecond(3));
  EXPECT_EQ(waits.Finish(AtSecond(4)).elapsed, 2);
  waits.Call(AtSecond(10));
  EXPECT_EQ(waits.Take(AtSecond(11)).elapsed, 0);
}

}  // namespace
}  // namespace millrace
