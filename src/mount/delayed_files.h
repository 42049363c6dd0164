#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "mount/written_file.h"

namespace millrace {

/// Passes files to a task after a delay, as those that were closed and the store gets later
/// (`millrace mount --write-back`).
///
///   DelayedFiles closed(std::chrono::seconds(5), 8, [&](const auto& file) { return Commit(file); });
///   closed.Add(file);  // Commit runs in five seconds, on one of eight threads
///
/// Thread-safe.
class DelayedFiles {
 public:
  /// Returns false if the file has to be tried again after the delay. Called by several threads.
  using Task = std::function<bool(const std::shared_ptr<WrittenFile>& file)>;

  DelayedFiles(std::chrono::nanoseconds delay, int threads, Task task);
  ~DelayedFiles();
  DelayedFiles(const DelayedFiles&) = delete;
  DelayedFiles& operator=(const DelayedFiles&) = delete;

  /// The delay of the file begins. If it has begun already, it begins again.
  void Add(const std::shared_ptr<WrittenFile>& file);
  /// The task does not begin for it any more. One that runs is not stopped, and is not tried again.
  void Remove(const WrittenFile& file);
  /// Waits for tasks that run. No other begins; the files that are left stay with their owner.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Queue = std::multimap<Clock::time_point, std::shared_ptr<WrittenFile>>;

  void AddLocked(const std::shared_ptr<WrittenFile>& file);
  void Work();

  const Clock::duration delay_;
  const Task task_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Queue due_;
  std::unordered_map<const WrittenFile*, Queue::iterator> places_;  // in `due_`
  // Runs of the task that may be tried again, by their numbers: Remove was not called for the file since.
  std::map<uint64_t, const WrittenFile*> running_;
  uint64_t runs_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace
