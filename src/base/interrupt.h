#pragma once

#include <stop_token>
#include <thread>

namespace millrace {

/// Notes SIGINT, SIGTERM and SIGHUP from now on, for a command to stop at the next step and clean up. The second signal
/// kills. SIGHUP is left alone if it is ignored, as under nohup.
void CatchInterrupts();
bool Interrupted();
/// Returns the first signal that was noted; 0 before one was.
int InterruptSignal();

/// Calls CatchInterrupts, and requests a stop at the first interrupt, for work that waits. One at a time.
class InterruptStop {
 public:
  InterruptStop();
  ~InterruptStop();
  InterruptStop(const InterruptStop&) = delete;
  InterruptStop& operator=(const InterruptStop&) = delete;
  std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace millrace
