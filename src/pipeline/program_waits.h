#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace millrace {

/// Represents the waits of a program whose batches pass through other threads. Those threads take batches from a
/// BatchSource, and work on them. Time counts from one call to the next, until the last one, and until now while the
/// program waits. Thread-safe.
class ProgramWaits {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Takes the name of the threads' work as a cause of waiting, such as "transform".
  explicit ProgramWaits(std::string work) : work_(std::move(work)) {}

  const std::string& work() const { return work_; }

  /// Records that the program asks for a batch, or has it.
  void Call(Time now);
  /// Begins a wait: for the work on a batch that is there, or for the data of the next one.
  void Begin(bool for_work, Time now);
  void End(Time now);

  /// Seconds that Take has not given before.
  struct Seconds {
    double data = 0;
    double work = 0;
    double elapsed = 0;  // with those in which the program did not wait
  };
  Seconds Take(Time now);
  /// Returns the same, for the last time before a pause: time counts again from the next call on.
  Seconds Finish(Time now);

 private:
  void Charge(Time now);

  const std::string work_;
  mutable std::mutex mutex_;
  std::optional<Time> last_;
  std::optional<bool> waits_for_work_;  // absent: it does not wait
  Seconds seconds_;
};

}  // namespace millrace
