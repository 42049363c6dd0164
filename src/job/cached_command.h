#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compile_cache/compile_cache.h"

namespace millrace {

/// A command with a compile cache: starts when the cache is there, gets signals, and is followed by the last
/// publication. A state machine without I/O.
class CachedCommand {
 public:
  struct Actions {
    std::function<void()> begin;                 // starts the command
    std::function<void(int signal)> signal;      // to the command, which has begun
    std::function<bool()> prepared;              // the command may start
    std::function<void(bool succeeded)> finish;  // publishes for the last time
    std::function<void()> stop;                  // gives the cache up
    std::function<bool()> done;                  // after `finish` or `stop`: all is done
  };
  /// The actions of a command without a cache; the caller adds `begin` and `signal`.
  static Actions WithoutCache();

  explicit CachedCommand(Actions actions) : actions_(std::move(actions)) {}

  /// Call it after each signal that this program got, and whenever something may have changed; `ended` is the exit
  /// status of the command, once it has one. Returns the exit status of the program when nothing is left to do.
  std::optional<int> Step(std::optional<int> signal, std::optional<int> ended);

 private:
  void OnSignal(int signal);

  const Actions actions_;
  bool begun_ = false;
  std::optional<int> status_;
  std::optional<int> stopped_;
  std::set<int> notices_;  // that came before the command began
};

struct CachedRunOptions {
  std::vector<std::string> command;
  std::string uri;            // of the cache
  std::string dir;            // the local folder; "": below the user's cache folder
  CompileCacheOptions cache;  // without folders
  std::chrono::milliseconds settle{60'000};
  std::chrono::milliseconds grace{0};
  std::function<void(const std::string&)> say;
};

/// Runs the command with what compilers have made on other hosts (compile_cache/compile_cache.h), and returns its exit
/// status. If the store cannot be used, the command runs without a cache. Call it in a program without threads.
absl::StatusOr<int> RunWithCache(CachedRunOptions options);

}  // namespace millrace
