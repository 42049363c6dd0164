#include "service/sending_turns.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

namespace millrace {

struct SendingTurns::State {
  using Clock = std::chrono::steady_clock;
  struct Batch {
    uint64_t bytes = 0;
    Clock::time_point awaited_until;  // by those after it
  };

  std::mutex mutex;
  std::condition_variable ended;
  std::list<Batch> sending;
};

/// Keeps a batch in State::sending.
class SendingTurns::Turn {
 public:
  Turn(std::shared_ptr<State> state, const State::Batch& batch) : state_(std::move(state)) {
    const std::lock_guard lock(state_->mutex);
    at_ = state_->sending.insert(state_->sending.end(), batch);
  }
  ~Turn() {
    const std::lock_guard lock(state_->mutex);
    state_->sending.erase(at_);
    state_->ended.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const std::shared_ptr<State> state_;
  std::list<State::Batch>::iterator at_;
};

SendingTurns::SendingTurns(std::chrono::nanoseconds max_wait)
    : max_wait_(max_wait), state_(std::make_shared<State>()) {}
SendingTurns::~SendingTurns() = default;

std::shared_ptr<void> SendingTurns::Begin(uint64_t bytes) {
  std::unique_lock lock(state_->mutex);
  for (;;) {
    const State::Clock::time_point now = State::Clock::now();
    State::Clock::time_point next = State::Clock::time_point::max();
    uint64_t sending = 0;
    for (const State::Batch& batch : state_->sending) {
      if (batch.awaited_until <= now) continue;
      sending += batch.bytes;
      next = std::min(next, batch.awaited_until);
    }
    if (sending == 0 || sending + bytes <= kTogether) break;
    state_->ended.wait_for(lock, next - now);
  }
  lock.unlock();  // nobody else begins one
  return std::make_shared<Turn>(state_, State::Batch{bytes, State::Clock::now() + max_wait_});
}

}  // namespace millrace
