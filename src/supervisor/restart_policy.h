#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace millrace {

/// How one execution of a command ended.
struct AttemptEnd {
  int status = 0;  // its exit status; 128 + signal if a signal ended it, as shells say it
  int signal = 0;  // 0: it exited
  std::chrono::milliseconds ran{0};
  bool stopped = false;  // the supervisor was asked to end, and has passed that on
};

/// Whether a command is started again, and when. Pure: no clock, no randomness.
///
/// There are `retries` + 1 attempts at most. None follows one that succeeded, that was asked to end (also by a SIGINT
/// of its own terminal), or that could not be started at all (status 126 or 127, as shells say it). The delay is
/// `delay` after the first failure and doubles with each further one in a row, up to a minute or `delay`, whichever is
/// longer; an attempt that ran for a minute begins a new row.
class RestartPolicy {
 public:
  RestartPolicy(uint64_t retries, std::chrono::milliseconds delay) : retries_(retries), delay_(delay) {}

  struct Decision {
    bool restart = false;
    std::chrono::milliseconds delay{0};
    std::string why;  // it is not restarted, though it failed: a clause for a message; else ""
  };
  Decision OnEnd(const AttemptEnd& end);

 private:
  const uint64_t retries_;
  const std::chrono::milliseconds delay_;
  uint64_t used_ = 0;
  uint64_t in_a_row_ = 0;  // failures, each within a minute
};

/// "exited with status 3", "was killed by signal 9 (SIGKILL)"
std::string EndText(const AttemptEnd& end);

}  // namespace millrace
