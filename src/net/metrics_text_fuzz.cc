#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/metrics_text.h"

/// The answer of an endpoint to `millrace top` is refused, or means the same when it is written again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto samples = ParseMetrics({reinterpret_cast<const char*>(data), size});
  if (!samples.ok()) return 0;
  for (const MetricSample& sample : *samples) {
    MetricLabels labels;
    for (const auto& [name, value] : sample.labels) labels.emplace_back(name, value);
    MetricsText text;
    text.Gauge(sample.name, "x", labels, sample.value);
    const auto again = ParseMetrics(text.Text());
    if (!again.ok() || again->size() != 1 || (*again)[0].name != sample.name) std::abort();
    if ((*again)[0].labels.size() != sample.labels.size()) std::abort();
    if ((*again)[0].value != sample.value && sample.value == sample.value) std::abort();
  }
  return 0;
}
