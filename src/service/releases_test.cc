#include "service/releases.h"

#include <gtest/gtest.h>

#include <future>

namespace millrace {
namespace {

using std::chrono::minutes;

TEST(ReleasesTest, AReleaseSinceTheCountIsNotMissed) {
  Releases releases;
  const uint64_t seen = releases.count();
  releases.Tell();
  releases.Await(seen, minutes(10), {});  // returns at once
  EXPECT_EQ(releases.count(), seen + 1);
}

TEST(ReleasesTest, AStopEndsTheWait) {
  Releases releases;
  std::stop_source stop;
  std::future<void> waited =
      std::async(std::launch::async, [&] { releases.Await(releases.count(), minutes(10), stop.get_token()); });
  stop.request_stop();
  EXPECT_EQ(waited.wait_for(minutes(5)), std::future_status::ready);
}

TEST(ReleasesTest, MemoryIsGoneWhenItsReleaseIsTold) {
  const auto releases = std::make_shared<Releases>();
  const auto memory = std::make_shared<int>(7);
  const std::weak_ptr<int> seen = memory;
  std::shared_ptr<void> watched = Releases::Watch(releases, memory);
  std::shared_ptr<void> other = watched;
  const uint64_t before = releases->count();
  watched.reset();
  EXPECT_EQ(releases->count(), before);
  std::future<bool> gone = std::async(std::launch::async, [&] {
    releases->Await(before, minutes(10), {});
    return seen.use_count() == 1;  // only `memory` of this test
  });
  other.reset();
  EXPECT_TRUE(gone.get());
}

}  // namespace
}  // namespace millrace
