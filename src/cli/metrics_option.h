#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/command_line.h"
#include "net/metrics_server.h"
#include "net/process_metrics.h"

/// `--metrics-port` of the commands that serve metrics (docs/metrics.md).

namespace millrace::cli {

void AddMetricsPort(const Command& command, std::string* value);

/// Returns nullopt if it was not given; a usage error if it makes no sense.
absl::StatusOr<std::optional<MetricsAddress>> TakeMetricsPort(const std::string& value);

/// Serves them, and says on stderr where; null without an address. The objects that `collect` reads must outlive the
/// server.
absl::StatusOr<std::unique_ptr<MetricsServer>> ServeMetrics(const std::optional<MetricsAddress>& address,
                                                            MetricsServer::Collect collect);

}  // namespace millrace::cli
