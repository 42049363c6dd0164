#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace millrace {

class MetricsText;

/// Counts the saves of the checkpoints of a process, by their URI, for its metrics. Thread-safe.
class CheckpointCounts {
 public:
  using Clock = std::chrono::steady_clock;

  /// Counts one save, from its beginning. The save has failed unless Committed() is called before its end.
  class Save {
   public:
    Save(CheckpointCounts& counts, std::string uri);
    ~Save();
    Save(const Save&) = delete;
    Save& operator=(const Save&) = delete;
    void Committed() { committed_ = true; }

   private:
    CheckpointCounts& counts_;
    const std::string uri_;
    const Clock::time_point begun_ = Clock::now();
    bool committed_ = false;
  };

  /// This many places have counts of their own; all others are counted together as "others".
  static constexpr size_t kMaxPlaces = 100;

  /// A process has opened them, perhaps to save there: a save that fails before the first scrape is an increase.
  void Opened(const std::string& uri);
  /// A process that saves there is at work from now on: the age of its newest checkpoint counts from here.
  void Claimed(const std::string& uri);

  void Collect(MetricsText* text) const;

 private:
  struct Place {
    uint64_t saves = 0;
    uint64_t failures = 0;
    double seconds = 0;       // of saves that were committed
    double last_seconds = 0;  // of the newest of them
    double newest = 0;        // when it was committed, as Unix time; until then when this process began to save, or 0
  };
  Place& PlaceOf(const std::string& uri);  // with mutex_
  void End(const std::string& uri, double seconds, bool committed);

  mutable std::mutex mutex_;
  std::map<std::string, Place> places_;
};

}  // namespace millrace
