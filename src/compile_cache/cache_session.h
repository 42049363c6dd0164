#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "compile_cache/compile_cache.h"

namespace millrace {

struct CacheSessionOptions {
  /// New files are published when nothing has changed in the folders for so long; 0: only at the end.
  std::chrono::milliseconds settle{60 * 1000};
  std::chrono::milliseconds term{60 * 1000};  // of the lease: that of the CompileCache
  /// If a command has failed, files that changed so shortly before its end may be half written, and are not stored.
  std::chrono::milliseconds suspect{10 * 1000};
  /// Is called on the session's thread when prepared() or done() has become true.
  std::function<void()> changed;
  /// Gets each error as a clause, on the session's thread. Nothing here ends a command: a cache only saves time.
  std::function<void(const std::string&)> journal;
};

/// Brings a compile cache to a machine before a command starts, publishes news while it runs and when it has ended, on
/// a thread of its own. The cache must outlive it. The calls come from one thread.
class CacheSession {
 public:
  CacheSession(CompileCache& cache, CacheSessionOptions options);
  /// Stops what is in flight, and waits for it.
  ~CacheSession();
  CacheSession(const CacheSession&) = delete;
  CacheSession& operator=(const CacheSession&) = delete;

  /// Returns true if the command can start.
  bool prepared() const;
  /// The command has ended: publishes for the last time, gives the lease back.
  void Finish(bool succeeded);
  /// Returns true after Finish or Stop, when all is done.
  bool done() const;
  /// Gives up: what is in flight is cancelled; only the lease is given back.
  void Stop();

 private:
  enum class CommandState { kRuns, kSucceeded, kFailed };

  void Run();
  void Tend();
  void PublishLast(CommandState state);
  void Note(const absl::Status& status, const char* what) const;
  void Set(bool* flag);

  CompileCache& cache_;
  const CacheSessionOptions options_;
  std::stop_source stop_;
  mutable std::mutex mutex_;
  std::condition_variable_any woken_;
  CommandState state_ = CommandState::kRuns;
  bool prepared_ = false;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace millrace
