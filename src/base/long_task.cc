#include "base/long_task.h"

#include <condition_variable>
#include <mutex>

namespace millrace {

bool SleepUnlessStopped(std::chrono::duration<double> time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;  // by the stop alone
  std::unique_lock lock(mutex);
  woken.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace millrace
