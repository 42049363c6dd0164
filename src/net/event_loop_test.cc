#include "net/event_loop.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <set>

#include "net/runtime.h"
#include "net/timer_queue.h"

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

/// Runs `task` on the loop and waits for it.
void RunOn(EventLoop& loop, absl::AnyInvocable<void()> task) {
  std::latch done(1);
  loop.Post([&] {
    task();
    done.count_down();
  });
  done.wait();
}

TEST(EventLoop, RunsTasksInOrderOnItsThread) {
  EventLoop loop("test-loop-with-a-long-name");
  EXPECT_FALSE(loop.InLoop());
  std::vector<int> order;
  bool in_loop = false;
  for (int i = 0; i < 3; ++i) loop.Post([&order, i] { order.push_back(i); });
  RunOn(loop, [&] { in_loop = loop.InLoop(); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(in_loop);
}

TEST(EventLoop, TasksOwnWhatTheyCapture) {
  auto owned = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = owned;
  {
    EventLoop loop("test");
    RunOn(loop, [owned = std::move(owned)] { EXPECT_EQ(*owned, 7); });
  }
  EXPECT_TRUE(watch.expired());
}

TEST(EventLoop, TasksPostedToAStoppedLoopAreDestroyed) {
  auto owned = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = owned;
  {
    std::promise<void> inside;
    std::promise<void> go;
    EventLoop loop("test");  // ends first: its tasks use the promises
    loop.Post([&] {
      inside.set_value();
      go.get_future().wait();
    });
    inside.get_future().wait();
    std::thread destroyer([&] { go.set_value(); });
    loop.Post([owned = std::move(owned)] {});
    destroyer.join();
  }
  EXPECT_TRUE(watch.expired());
}

TEST(EventLoop, RunAndWaitReturnsWhenTheTaskIsDone) {
  EventLoop loop("test");
  int done = 0;
  for (int i = 1; i <= 1000; ++i) {
    RunAndWait(loop, [&] { done += loop.InLoop() ? 1 : 0; });
    ASSERT_EQ(done, i);
  }
}

TEST(Timer, Fires) {
  EventLoop loop("test");
  std::promise<bool> fired;
  std::optional<Timer> timer;
  RunOn(loop, [&] {
    timer.emplace(loop);
    timer->Start(milliseconds(1), [&] { fired.set_value(loop.InLoop()); });
  });
  EXPECT_TRUE(fired.get_future().get());
  RunOn(loop, [&] { timer.reset(); });
}

TEST(Timer, ACancelledTaskIsDestroyedNotCalled) {
  EventLoop loop("test");
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owned;
  RunOn(loop, [&] {
    Timer timer(loop);
    timer.Start(hours(1), [owned = std::move(owned)] { FAIL(); });
    timer.Cancel();
    EXPECT_TRUE(watch.expired());
  });
}

TEST(Timer, StartingAnewReplacesTheTask) {
  EventLoop loop("test");
  std::promise<int> fired;
  std::optional<Timer> timer;
  RunOn(loop, [&] {
    timer.emplace(loop);
    // The first wait is over before the loop comes to look at it; its task is replaced all the same.
    timer->Start(milliseconds(0), [&] { fired.set_value(1); });
    timer->Start(milliseconds(1), [&] { fired.set_value(2); });
  });
  EXPECT_EQ(fired.get_future().get(), 2);
  RunOn(loop, [&] { timer.reset(); });
}

TEST(Timer, ATaskMayDestroyItsTimer) {
  EventLoop loop("test");
  std::promise<void> fired;
  auto timer = std::make_unique<Timer>(loop);
  loop.Post([&] {
    timer->Start(milliseconds(0), [&] {
      timer.reset();
      fired.set_value();
    });
  });
  fired.get_future().wait();
  RunOn(loop, [&] { EXPECT_EQ(timer, nullptr); });
}

class TimerQueueTest : public ::testing::Test {
 protected:
  ~TimerQueueTest() override {
    RunOn(loop_, [&] { queue_.reset(); });
  }
  TimerQueue::Id Start(int ms) {
    return queue_->Start(milliseconds(ms), [this, ms] { Ran(ms); });
  }
  void Ran(int ms) {
    ran_.push_back(ms);
    if (ms == last_) done_.count_down();
  }
  std::vector<int> WaitForLast() {
    done_.wait();
    std::vector<int> ran;
    RunOn(loop_, [&] { ran = ran_; });
    return ran;
  }

  EventLoop loop_{"timer-queue"};
  std::optional<TimerQueue> queue_{std::in_place, loop_};
  TimerQueue::Id doomed_ = 0;
  std::vector<int> ran_;
  int last_ = 0;  // of ran_, in milliseconds
  std::latch done_{1};
};

TEST_F(TimerQueueTest, RunsWhatIsDueAndNotCancelled) {
  const auto begin = std::chrono::steady_clock::now();
  RunOn(loop_, [&] {
    last_ = 30;
    const TimerQueue::Id first = Start(10);
    Start(20);
    const TimerQueue::Id third = Start(25);
    Start(30);
    queue_->Cancel(third);
    queue_->Cancel(first);
    queue_->Cancel(first);  // again: nothing
  });
  EXPECT_EQ(WaitForLast(), (std::vector<int>{20, 30}));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(30));
}

TEST_F(TimerQueueTest, RunsThoseFirstThatAreDueFirst) {
  RunOn(loop_, [&] {
    last_ = 20;
    Start(20);
    Start(1);
    Start(10);
  });
  EXPECT_EQ(WaitForLast(), (std::vector<int>{1, 10, 20}));
}

TEST_F(TimerQueueTest, ACancelledOneHoldsUpNoOther) {
  RunOn(loop_, [&] {
    last_ = 1;
    queue_->Cancel(Start(3'600'000));
    Start(1);
  });
  EXPECT_EQ(WaitForLast(), (std::vector<int>{1}));
}

TEST_F(TimerQueueTest, ForgetsWhatWasCancelled) {
  auto owned = std::make_shared<int>(0);
  RunOn(loop_, [&] {
    last_ = 5;
    for (int i = 0; i < 10'000; ++i) {
      const TimerQueue::Id kept = i % 100 == 0 ? Start(2) : 0;
      const TimerQueue::Id id = queue_->Start(hours(1), [owned] { ++*owned; });
      EXPECT_NE(id, kept);
      queue_->Cancel(id);
    }
    Start(5);
  });
  const std::vector<int> ran = WaitForLast();
  EXPECT_EQ(ran.size(), 101u);
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_F(TimerQueueTest, TasksMayStartAndCancelOthers) {
  RunOn(loop_, [&] {
    last_ = 5;
    queue_->Start(milliseconds(2), [this] {
      queue_->Cancel(doomed_);
      Start(5);
      Ran(2);
    });
    doomed_ = Start(3);
  });
  EXPECT_EQ(WaitForLast(), (std::vector<int>{2, 5}));
}

TEST_F(TimerQueueTest, StartsAnewWhenItWasEmpty) {
  for (int round = 0; round < 3; ++round) {
    std::promise<void> ran;
    RunOn(loop_, [&] { queue_->Start(milliseconds(1), [&] { ran.set_value(); }); });
    ran.get_future().wait();
  }
}

TEST(EventLoops, AreTakenInTurn) {
  EventLoops loops(3);
  std::set<EventLoop*> seen;
  for (int i = 0; i < 3; ++i) seen.insert(&loops.Next());
  EXPECT_EQ(seen.size(), 3u);
}

TEST(Runtime, HasTheMachinesSizeUnlessToldOtherwise) {
  Runtime automatic;
  EXPECT_EQ(automatic.cpu().threads(), UsableCpus());
  EXPECT_EQ(automatic.loops().size(), 1u);
  EXPECT_EQ(automatic.memory().limit(), UsableMemory() / 2);
  EXPECT_GT(UsableMemory(), uint64_t{64} << 20);
  Runtime given({.io_threads = 2, .cpu_threads = 3, .memory_bytes = 1000});
  EXPECT_EQ(given.cpu().threads(), 3);
  EXPECT_EQ(given.loops().size(), 2u);
  EXPECT_EQ(given.memory().limit(), 1000u);
}

}  // namespace
}  // namespace millrace
