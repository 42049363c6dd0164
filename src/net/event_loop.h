#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace boost::asio {
class io_context;
}

namespace millrace {

/// Runs network events on one thread. Everything that belongs to a loop (sockets, timers, connection pools) is touched
/// by its thread only, so nothing there is locked. While a task runs, everything else on its loop waits: no blocking
/// call, and no more CPU work than the network needs anyway (ARCHITECTURE.md, Threads). An exception that leaves a task
/// is logged, and the loop runs on: what the task owned must answer its callers when it is destroyed.
///
/// The destructor stops the loop at once and joins: owners of work on the loop cancel it and wait for its callbacks
/// first.
class EventLoop {
 public:
  explicit EventLoop(std::string name);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs `task` on the loop's thread, soon. Thread-safe.
  void Post(absl::AnyInvocable<void()> task);

  /// Returns true on the loop's own thread.
  bool InLoop() const;

  boost::asio::io_context& context();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs `task` on the loop's thread and returns when it is done; throws what it throws. Never on a loop's own thread,
/// which would wait for itself.
void RunAndWait(EventLoop& loop, absl::FunctionRef<void()> task);

/// This is a timer of one loop; used on that loop's thread only. Its destructor cancels.
class Timer {
 public:
  explicit Timer(EventLoop& loop);
  ~Timer();

  /// Calls `task` on the loop after `delay`, unless cancelled or started again before. A cancelled task is destroyed,
  /// not called.
  void Start(std::chrono::nanoseconds delay, absl::AnyInvocable<void()> task);
  void Cancel();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the pending wait
};

/// Holds a few loops; work is spread over them in turn.
class EventLoops {
 public:
  explicit EventLoops(int count);
  EventLoop& Next();
  EventLoop& at(size_t i) { return *loops_[i]; }
  size_t size() const { return loops_.size(); }

 private:
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::atomic<size_t> next_{0};
};

}  // namespace millrace
