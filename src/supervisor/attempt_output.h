#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"
#include "base/unique_fd.h"
#include "supervisor/bounded_log.h"

namespace millrace {

/// Represents the standard output and error of one execution of a command, which go through this process: to its own,
/// and to a log if there is one. A thread copies them. Used by one thread otherwise.
class AttemptOutput {
 public:
  using Clock = std::chrono::steady_clock;

  /// `log` may be nullptr.
  static absl::StatusOr<std::unique_ptr<AttemptOutput>> Make(std::unique_ptr<BoundedLog> log);
  ~AttemptOutput();
  AttemptOutput(const AttemptOutput&) = delete;
  AttemptOutput& operator=(const AttemptOutput&) = delete;

  /// The command writes to this descriptor.
  int output() const { return streams_[0].write_end.get(); }
  int errors() const { return streams_[1].write_end.get(); }

  /// Once the command runs.
  void Begin();
  /// Call it once the command has ended. It copies the output and waits for that, but no longer than five seconds for a
  /// reader that does not read. Later output of processes that the command has left behind is lost to them as if the
  /// reader of a pipe were gone. The result is an error of the log.
  absl::Status Finish();

  /// Returns the time of the last output. Thread-safe.
  Clock::time_point last() const { return Clock::time_point(Clock::duration(last_.load(std::memory_order_relaxed))); }
  /// Returns the last 4 KiB of both, after Finish.
  const std::string& tail() const { return tail_; }

 private:
  struct Stream {
    UniqueFd read_end{-1};
    UniqueFd write_end{-1};
    int destination = -1;
    bool forwards = true;  // the destination takes it
  };

  explicit AttemptOutput(std::unique_ptr<BoundedLog> log) : log_(std::move(log)) {}
  void Copy();
  bool CopyOnce(Stream& stream);
  void Forward(Stream& stream, std::string_view text);

  const std::unique_ptr<BoundedLog> log_;
  Stream streams_[2];
  UniqueFd stop_{-1};  // an eventfd
  std::atomic<Clock::rep> last_{0};
  std::atomic<Clock::rep> give_up_{0};  // 0: not to stop
  std::string tail_;
  absl::Status log_status_;
  std::thread thread_;
};

}  // namespace millrace
