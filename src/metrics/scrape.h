#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "metrics/metrics_server.h"
#include "metrics/metrics_text.h"
#include "net/http_client.h"

namespace millrace {

/// Reads the metrics of many processes, each within two seconds. Blocking, not on a loop.
class Scraper {
 public:
  static constexpr size_t kMaxPageBytes = size_t{8} << 20;

  Scraper();

  /// What each has to tell, in their order, asked all at a time: or Unavailable if it does not answer, InvalidArgument
  /// if what it answers are no metrics.
  std::vector<absl::StatusOr<std::vector<MetricSample>>> Read(const std::vector<MetricsAddress>& addresses);

 private:
  EventLoops loops_;
  HttpClient client_;
};

}  // namespace millrace
