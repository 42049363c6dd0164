#include "service/silence.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Silence::Time kListening{seconds(1000)};

TEST(SilenceTest, LastsFromTheLastWordOn) {
  Silence silence;
  for (int look = 0; look <= 20; ++look) {
    const milliseconds passed(100 * look);
    EXPECT_EQ(silence.Look(kListening, kListening + passed), passed);
  }
  const Silence::Time word = kListening + milliseconds(2050);
  EXPECT_EQ(silence.Look(word, kListening + milliseconds(2100)), milliseconds(50)) << "it has said something";
  EXPECT_EQ(silence.Look(word, kListening + milliseconds(2200)), milliseconds(150));
}

// The trainer's process, or the whole machine, stood still: the worker may have answered meanwhile.
TEST(SilenceTest, APauseOfTheListenerDoesNotCount) {
  Silence silence;
  silence.Look(kListening, kListening + milliseconds(100));
  EXPECT_EQ(silence.Look(kListening, kListening + seconds(60)), milliseconds(300));
  EXPECT_EQ(silence.Look(kListening, kListening + seconds(60) + milliseconds(100)), milliseconds(400));
  Silence late;
  EXPECT_EQ(late.Look(kListening, kListening + seconds(60)), milliseconds(200)) << "the first look";
}

TEST(SilenceTest, AWordThatComesMeanwhileIsNoSilence) {
  Silence silence;
  silence.Look(kListening, kListening + milliseconds(100));
  EXPECT_EQ(silence.Look(kListening + milliseconds(300), kListening + milliseconds(200)), milliseconds(0));
}

}  // namespace
}  // namespace millrace
