#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "service/placement.h"
#include "service/worker_places.h"

namespace millrace {

/// Looks up the workers every two seconds, on its own thread, and gives them to the placement.
class Membership {
 public:
  /// The placement outlives it.
  Membership(WorkerFinder finder, Placement& placement);
  /// Waits for a look that is under way, a few seconds at most.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

 private:
  void Run();

  WorkerFinder finder_;
  Placement& placement_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace millrace
