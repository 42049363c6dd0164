#include "service/way_delay.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;

const WayDelay::Time kSent{std::chrono::seconds(1000)};

// Returns an answer over a way of this delay, there and back, whose body takes so long.
WayDelay::Answer Over(milliseconds way, milliseconds body) {
  return {.sent = kSent, .asked = kSent, .begun = kSent + way, .came = kSent + way + body};
}

TEST(WayDelayTest, ALongWayHasRoom) {
  WayDelay delay;
  EXPECT_FALSE(delay.Look(Over(milliseconds(20), milliseconds(4)))) << "it may have been a pause of a process";
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(delay.Look(Over(milliseconds(20), milliseconds(4)))) << i;
  EXPECT_FALSE(delay.Look(Over(milliseconds(0), milliseconds(4))));
  EXPECT_FALSE(delay.Look(Over(milliseconds(20), milliseconds(4)))) << "a pause again";
}

TEST(WayDelayTest, LargeBatchesNeedNoMoreRequests) {
  WayDelay delay;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(delay.Look(Over(milliseconds(20), milliseconds(40)))) << i;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(delay.Look(Over(milliseconds(20), milliseconds(39))), i > 0) << i;
}

TEST(WayDelayTest, ASlowHandshakeIsNoDelayOfTheWay) {
  WayDelay delay;
  WayDelay::Answer answer = Over(milliseconds(300), milliseconds(4));
  answer.on_new_connection = true;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(delay.Look(answer)) << i;
  // Nor does it hide one.
  delay.Look(Over(milliseconds(20), milliseconds(4)));
  delay.Look(answer);
  EXPECT_TRUE(delay.Look(Over(milliseconds(20), milliseconds(4))));
}

TEST(WayDelayTest, ABusyTrainerAndABusyWorkerAreNoDelayOfTheWay) {
  WayDelay delay;
  WayDelay::Answer slow_worker = Over(milliseconds(300), milliseconds(4));
  slow_worker.waited = milliseconds(299) + std::chrono::microseconds(500);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(delay.Look(slow_worker)) << i;
  // Its loop was busy when the request was to go out, and when the answer was there.
  WayDelay::Answer slow_trainer = Over(milliseconds(9), milliseconds(4));
  slow_trainer.sent -= milliseconds(9);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(delay.Look(slow_trainer)) << i;
}

}  // namespace
}  // namespace millrace
