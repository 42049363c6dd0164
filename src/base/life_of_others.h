#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace millrace {

/// Signs of life for other processes, for which bytes were moved: changes the time of the file that MILLRACE_HEARTBEAT
/// names in them, at most once in half a second. A thread of its own does so, because such a file may be anywhere: on a
/// file system that hangs, or on one that waits for the caller. Only a file of the process's own user is touched.
/// Nothing happens if the program has no such file. Thread-safe.
class LifeOfOthers {
 public:
  /// No file on a device for which `is_own` is true is touched; the thread asks it.
  explicit LifeOfOthers(std::function<bool(dev_t)> is_own);
  /// Waits for a file that is being touched.
  ~LifeOfOthers();
  LifeOfOthers(const LifeOfOthers&) = delete;
  LifeOfOthers& operator=(const LifeOfOthers&) = delete;

  /// Does no I/O, so it may be called under locks. Signs are lost while too many wait.
  void Show(pid_t process);

 private:
  void Run();
  void Touch(pid_t process) const;

  const std::function<bool(dev_t)> is_own_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<pid_t, std::chrono::steady_clock::time_point> shown_;
  std::set<pid_t> waiting_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace millrace
