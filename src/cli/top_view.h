#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/metrics_text.h"

namespace millrace::cli {

/// Represents the metrics of one process at one time.
struct TopPage {
  double at = 0;  // seconds, by any clock
  absl::StatusOr<std::vector<MetricSample>> samples = std::vector<MetricSample>();
};

/// Represents the activity of a process, from two of its pages: rates between them. Pure.
class TopProcess {
 public:
  struct Loader {
    std::string data;
    uint64_t open = 0;
    double samples_per_second = 0;
    double tokens_per_second = 0;
    double waited_share = 0;                     // of the time between the pages, for each loader that is open
    std::map<std::string, double> stall_shares;  // the same by cause, the others left out
    double quarantined = 0;                      // so far
    bool has_cache = false;
    double hit_bytes_per_second = 0;
    double miss_bytes_per_second = 0;
    std::map<std::string, double> worker_rows_per_second;
    std::map<std::string, double> worker_failures;  // so far
  };

  TopProcess(std::string name, const TopPage& before, const TopPage& now);

  const std::string& name() const { return name_; }
  const absl::Status& status() const { return status_; }  // of the page of now
  const std::vector<Loader>& loaders() const { return loaders_; }

  /// Returns lines for people.
  std::string Text() const;
  /// Returns a JSON object.
  std::string JsonText() const;

 private:
  using Labels = std::map<std::string, std::string>;

  /// The sum over all samples of that name whose labels hold these.
  static double Sum(const std::vector<MetricSample>& samples, std::string_view name, const Labels& labels);
  bool Has(std::string_view name) const;
  double Now(std::string_view name, const Labels& labels = {}) const { return Sum(now_, name, labels); }
  /// Returns the rate of a counter; 0 if the process was started again between the pages.
  double Rate(std::string_view name, const Labels& labels = {}) const;
  /// The values of a label, over all samples of that name.
  std::vector<std::string> Values(std::string_view name, const std::string& label) const;
  void ReadLoaders();
  std::string LoaderText(const Loader& loader) const;
  std::string PartsText() const;

  const std::string name_;
  absl::Status status_;
  std::vector<MetricSample> before_;
  std::vector<MetricSample> now_;
  double seconds_ = 0;
  std::vector<Loader> loaders_;
};

}  // namespace millrace::cli
