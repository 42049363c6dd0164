#include "service/sending_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

constexpr uint64_t kSmall = uint64_t{1} << 20;
constexpr uint64_t kLarge = 2 * SendingTurns::kTogether;
constexpr std::chrono::hours kForever{24 * 365};

// With an endless `max_wait` a wait would not end.
TEST(SendingTurnsTest, SmallBatchesAreSentTogether) {
  SendingTurns turns(kForever);
  std::vector<std::shared_ptr<void>> sending;
  for (uint64_t bytes = 0; bytes < SendingTurns::kTogether; bytes += kSmall) sending.push_back(turns.Begin(kSmall));
  sending.clear();
  const std::shared_ptr<void> alone = turns.Begin(kLarge);
  EXPECT_NE(alone, nullptr) << "one that is larger than what is sent together is sent alone";
}

TEST(SendingTurnsTest, ALargeBatchWaitsForThoseBeforeIt) {
  struct Two {
    uint64_t first = 0;
    uint64_t second = 0;
  };
  for (const Two two : {Two{kLarge, kLarge}, Two{kLarge, kSmall}, Two{kSmall, kLarge}}) {
    SendingTurns turns(kForever);
    std::shared_ptr<void> first = turns.Begin(two.first);
    std::atomic<bool> waits{false};
    std::atomic<bool> is_gone{false};
    bool was_gone = false;
    std::thread other([&] {
      waits = true;
      const std::shared_ptr<void> second = turns.Begin(two.second);
      was_gone = is_gone;
    });
    while (!waits) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // one that did not wait would be seen
    is_gone = true;
    first.reset();
    other.join();
    EXPECT_TRUE(was_gone) << two.first << " " << two.second;
  }
}

// A peer may have stopped reading: its batch is waited for no longer than `max_wait`, and does not count after that.
TEST(SendingTurnsTest, NoBatchWaitsForLong) {
  SendingTurns turns(std::chrono::milliseconds(1));
  std::vector<std::shared_ptr<void>> stuck;
  for (int i = 0; i < 10; ++i) stuck.push_back(turns.Begin(kLarge));
  const std::shared_ptr<void> small = turns.Begin(kSmall);
  EXPECT_NE(small, nullptr);
}

TEST(SendingTurnsTest, ATurnMayOutliveThem) {
  std::shared_ptr<void> turn;
  {
    SendingTurns turns;
    turn = turns.Begin(kLarge);
  }
  turn.reset();
}

// Those that are on their way end in any order, on another thread.
TEST(SendingTurnsTest, NoMoreIsSentTogetherThanMayBe) {
  struct Sent {
    std::shared_ptr<void> turn;
    uint64_t bytes = 0;
  };
  SendingTurns turns(kForever);
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Sent> sending;
  bool over = false;
  std::atomic<uint64_t> bytes_sending{0};
  std::thread sender([&] {
    std::mt19937_64 random(1);
    for (;;) {
      Sent sent;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return over || !sending.empty(); });
        if (sending.empty()) return;
        const auto any = sending.begin() + static_cast<std::ptrdiff_t>(random() % sending.size());
        sent = std::move(*any);
        sending.erase(any);
      }
      bytes_sending -= sent.bytes;
    }
  });
  std::mt19937_64 random(2);
  for (int i = 0; i < 5000; ++i) {
    const uint64_t bytes = 1 + random() % (2 * SendingTurns::kTogether >> random() % 8);
    std::shared_ptr<void> turn = turns.Begin(bytes);
    EXPECT_LE(bytes_sending += bytes, std::max(bytes, SendingTurns::kTogether));
    const std::lock_guard lock(mutex);
    sending.push_back({std::move(turn), bytes});
    changed.notify_all();
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
    changed.notify_all();
  }
  sender.join();
  EXPECT_EQ(bytes_sending, 0u);
}

}  // namespace
}  // namespace millrace
