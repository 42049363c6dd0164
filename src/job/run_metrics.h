#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "net/metrics_text.h"
#include "supervisor/run_journal.h"

namespace millrace {

/// Represents the metrics of `millrace run`: the events of its journal, counted. Counters are there from the start,
/// with 0, so that the first event counts as an increase; those of the ends of attempts come with the first of their
/// reason. Thread-safe.
class RunMetrics {
 public:
  RunMetrics();
  void OnEvent(std::string_view event, const RunJournal::Fields& fields);
  void Collect(MetricsText* text) const;

 private:
  mutable std::mutex mutex_;
  bool running_ = false;
  int64_t allowed_ = 0;  // attempts
  uint64_t attempts_ = 0;
  uint64_t restarts_ = 0;
  uint64_t hangs_ = 0;
  std::string outcome_;                      // of the job; "": it has not ended
  double ended_ = 0;                         // when, as Unix time
  double seconds_ = 0;                       // of attempts that have ended
  std::map<std::string, uint64_t> ends_;     // of attempts, by reason
  std::map<std::string, uint64_t> notices_;  // by kind
};

}  // namespace millrace
