#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "mount/written_file.h"

namespace millrace {

/// Files that programs have closed and the store gets some time later (`millrace mount --write-back`).
///
///   WriteBack back(std::chrono::seconds(5), [&](const auto& file) { return Commit(file); });
///   back.Add(file);  // Commit runs in five seconds, on a thread of `back`
///
/// Thread-safe.
class WriteBack {
 public:
  /// Returns false if the file has to be tried again after the delay. Called by several threads.
  using Commit = std::function<bool(const std::shared_ptr<WrittenFile>& file)>;

  WriteBack(std::chrono::nanoseconds delay, Commit commit);
  ~WriteBack();
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;

  /// The delay of the file begins. If it has begun already, it begins again.
  void Add(const std::shared_ptr<WrittenFile>& file);
  /// Waits for commits that run. No other begins; the files that are left stay with their owner.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Queue = std::multimap<Clock::time_point, std::shared_ptr<WrittenFile>>;

  void AddLocked(const std::shared_ptr<WrittenFile>& file);
  void Work();

  const Clock::duration delay_;
  const Commit commit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Queue due_;
  std::unordered_map<const WrittenFile*, Queue::iterator> places_;  // in `due_`
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace
