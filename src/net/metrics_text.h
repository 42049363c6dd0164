#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Names and values of labels, in the order in which they are written.
using MetricLabels = std::vector<std::pair<std::string_view, std::string_view>>;

/// Holds metrics that are gathered from several places, and written in Prometheus's text format, version 0.0.4.
///
/// These files have the names of metrics: cli/top_view.cc, deploy/prometheus, deploy/grafana, docs/metrics.md.
///
///   MetricsText text;
///   text.Counter("millrace_requests_total", "Requests that were sent.", {{"method", "GET"}}, 12);
///   text.Text();  // a HELP and a TYPE line, then: millrace_requests_total{method="GET"} 12
class MetricsText {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

  /// Adds a number that never falls while the process lives. Its name ends in "_total". Values of the same name and
  /// labels add up.
  void Counter(std::string_view name, std::string_view help, const MetricLabels& labels, double value);
  /// Adds a number that may fall.
  void Gauge(std::string_view name, std::string_view help, const MetricLabels& labels, double value);

  std::string Text() const;

 private:
  struct Family {
    std::string help;
    const char* type = "";
    std::map<std::string, double> values;  // by the labels as they are written
  };

  void Add(std::string_view name, std::string_view help, const char* type, const MetricLabels& labels, double value);

  std::map<std::string, Family, std::less<>> families_;
};

/// This is one value of such a text.
struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

/// Reads the text format: comments are passed over, time stamps are ignored. InvalidArgument with the number of the
/// line that is something else.
absl::StatusOr<std::vector<MetricSample>> ParseMetrics(std::string_view text);

}  // namespace millrace
