#include "base/in_flight.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(InFlight, WaitsForNothingIfNothingHasBegun) {
  InFlight calls;
  calls.Begin();
  calls.End();
  calls.Wait();
}

TEST(InFlight, ItMayBeFreedRightAfterTheWait) {
  for (int round = 0; round < 500; ++round) {
    auto calls = std::make_unique<InFlight>();
    std::atomic<int> ended{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      calls->Begin();
      threads.emplace_back([&ended, &flight = *calls] {
        flight.Begin();  // more may begin while something has not ended
        flight.End();
        ++ended;
        flight.End();
      });
    }
    calls->Wait();
    EXPECT_EQ(ended.load(), 3);
    calls.reset();  // a sanitizer would report a late access
  }
}

}  // namespace
}  // namespace millrace
