#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

namespace millrace {

/// Decides when a worker sends the next batch of a session: batches leave one after the other. Batches that are sent
/// together would share the network path and be complete at the same time. If the path is long, the trainer then asks
/// for the next ones together, too, and the path is empty until these requests arrive. Small batches do leave together.
/// No batch waits long for another one: a connection may carry less than the path does, and a peer may have stopped
/// reading.
///
/// This class is for one thread. The pointer that Begin returns may be released on any thread, also after this object
/// was destroyed.
class SendingTurns {
 public:
  /// So many bytes are sent together: about what the system buffers of a connection anyway.
  static constexpr uint64_t kTogether = uint64_t{4} << 20;
  /// This is the time of 19 MB at 2 GB/s. Batches that take longer share the path: if each of them takes long, a round
  /// trip matters less.
  static constexpr std::chrono::milliseconds kMaxWait{10};

  explicit SendingTurns(std::chrono::nanoseconds max_wait = kMaxWait);
  ~SendingTurns();
  SendingTurns(const SendingTurns&) = delete;
  SendingTurns& operator=(const SendingTurns&) = delete;

  /// Waits until a batch of so many bytes may be sent. Batches that began before must have been sent, except those that
  /// may be sent together with it, and those that have been in flight for `max_wait`. The turn ends when the last
  /// pointer to the result is released.
  std::shared_ptr<void> Begin(uint64_t bytes);

 private:
  struct State;
  class Turn;

  const std::chrono::nanoseconds max_wait_;
  const std::shared_ptr<State> state_;
};

}  // namespace millrace
