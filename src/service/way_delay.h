#pragma once

#include <chrono>

namespace millrace {

/// Decides whether the network path from a worker has room: a good part of the time that a batch takes is the delay of
/// the path. Then more requests in flight bring the next batches sooner. If a batch takes long because it is large, or
/// because one of the two ends is busy, they would only let bytes wait in more places. Pure: the caller brings the
/// times. Not thread-safe.
class WayDelay {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  /// Describes a batch that a stream had nothing to do but to wait for.
  struct Answer {
    bool on_new_connection = false;  // its request has opened the connection
    Time sent{};                     // its request was handed to the loop,
    Time asked{};                    // and went out, on an open connection
    Duration waited{};               // for the batch, at the worker
    Time begun{};                    // the head of the answer has come,
    Time came{};                     // and its last byte
  };

  /// Below this, more requests in flight gain nothing.
  static constexpr std::chrono::milliseconds kLeastDelay{1};
  /// The delay must be this part of the time that a batch takes. The bytes in flight then grow to three times what the
  /// path holds.
  static constexpr int kGoodPart = 3;
  /// One answer may be late because a process was kept from its CPU.
  static constexpr int kInARow = 2;

  /// Returns true if the path has room. The first answer of a connection says nothing of that, in whichever way the
  /// connection was made: with handshakes, slowly, and with a small window.
  bool Look(const Answer& answer) {
    if (answer.on_new_connection) return false;
    // A busy loop is as late with the answer as it was with the request.
    const Duration of_loop = answer.asked - answer.sent;
    const Duration of_way = answer.begun - answer.asked - answer.waited - of_loop;
    const bool is_delayed = of_way >= kLeastDelay && of_way > (answer.came - answer.asked) / kGoodPart;
    in_a_row_ = is_delayed ? in_a_row_ + 1 : 0;
    return in_a_row_ >= kInARow;
  }

 private:
  int in_a_row_ = 0;
};

}  // namespace millrace
