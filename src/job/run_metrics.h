#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "net/metrics_text.h"
#include "supervisor/run_journal.h"

namespace millrace {

/// The metrics of `millrace run`: the events of its journal, counted. Thread-safe.
class RunMetrics {
 public:
  void OnEvent(std::string_view event, const RunJournal::Fields& fields);
  void Collect(MetricsText* text) const;

 private:
  mutable std::mutex mutex_;
  bool running_ = false;
  int64_t allowed_ = 0;  // attempts
  uint64_t attempts_ = 0;
  uint64_t restarts_ = 0;
  double seconds_ = 0;                       // of attempts that have ended
  std::map<std::string, uint64_t> ends_;     // of attempts, by reason
  std::map<std::string, uint64_t> notices_;  // by kind
};

}  // namespace millrace
