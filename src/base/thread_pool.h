#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace millrace {

/// Holds a fixed set of threads that run tasks in the order of submission. The destructor runs all submitted tasks,
/// then joins the threads.
///
/// The queue itself has no bound: the caller must hold something bounded (a buffer of a budget, a slot) for each task.
/// Tasks must not throw. Thread-safe.
class ThreadPool {
 public:
  /// `name` shows in `top -H` (15 characters at most). threads >= 1. Throws std::system_error if the machine allows no
  /// more threads.
  ThreadPool(int threads, std::string name);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void Submit(absl::AnyInvocable<void()> task);
  int threads() const { return static_cast<int>(threads_.size()); }

 private:
  void Run();
  void Stop();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<absl::AnyInvocable<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace
