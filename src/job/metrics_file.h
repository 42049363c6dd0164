#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "job/run_metrics.h"

namespace millrace {

/// Keeps the metrics of `millrace run` in a file for a node exporter. It is written at each event, and every `every`
/// while the run lives, so that its time tells whether the run lives. The file stays. Thread-safe.
class MetricsFile {
 public:
  static constexpr std::chrono::seconds kEvery{30};

  /// `path` may be empty: then nothing is written. `metrics` must live longer. `say` gets the text of errors.
  MetricsFile(std::string path, const RunMetrics& metrics, std::function<void(const std::string& text)> say,
              std::chrono::duration<double> every = kEvery);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void Write();

 private:
  absl::Status TryWrite();

  const std::string path_;
  const RunMetrics& metrics_;
  const std::function<void(const std::string& text)> say_;
  std::mutex mutex_;      // of the file
  std::jthread renewal_;  // the last member: it ends before the others
};

}  // namespace millrace
