#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "net/http_client.h"
#include "net/metrics_server.h"
#include "net/metrics_text.h"

namespace millrace {

/// Reads the metrics of many processes, each within two seconds. Blocking, not on a loop.
class Scraper {
 public:
  static constexpr size_t kMaxPageBytes = size_t{8} << 20;

  Scraper();

  /// Asks all at a time; the results are in the order of the addresses. Unavailable if a process does not answer,
  /// InvalidArgument if its answer is not metrics.
  std::vector<absl::StatusOr<std::vector<MetricSample>>> Read(const std::vector<MetricsAddress>& addresses);

 private:
  EventLoops loops_;
  HttpClient client_;
};

}  // namespace millrace
