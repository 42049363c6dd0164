#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

namespace millrace {

/// When a worker sends the next batch of a session: batches leave one after the other. Sent together they would share
/// the way and be whole together; over a long way the trainer then asks for the next ones together, too, and the way is
/// empty until these requests have come. Small batches do leave together. And none waits for another one for long: a
/// connection may carry less than the way does, and a peer may have stopped reading.
///
/// For one thread. What Begin returns may go on any thread, also after this has gone.
class SendingTurns {
 public:
  /// So many bytes are sent together: about what the system buffers of a connection anyway.
  static constexpr uint64_t kTogether = uint64_t{4} << 20;
  /// 19 MB at 2 GB/s. Batches that take longer share the way: if each of them takes long, a round trip matters less.
  static constexpr std::chrono::milliseconds kPatience{10};

  explicit SendingTurns(std::chrono::nanoseconds patience = kPatience);
  ~SendingTurns();
  SendingTurns(const SendingTurns&) = delete;
  SendingTurns& operator=(const SendingTurns&) = delete;

  /// Waits for the turn of a batch of so many bytes: until those that began before have gone, but for what may be sent
  /// together, or have been on their way for `patience`. The turn ends when the last pointer to the result goes.
  std::shared_ptr<void> Begin(uint64_t bytes);

 private:
  struct State;
  class Turn;

  const std::chrono::nanoseconds patience_;
  const std::shared_ptr<State> state_;
};

}  // namespace millrace
