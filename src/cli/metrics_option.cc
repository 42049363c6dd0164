#include "cli/metrics_option.h"

#include <utility>

#include "cli/console.h"

namespace millrace::cli {

void AddMetricsPort(const Command& command, std::string* value) {
  command.Add("--metrics-port [HOST:]PORT", value,
              "Serve metrics for Prometheus and `millrace top` on this port of this machine, or on HOST:PORT; 0: any "
              "free port");
}

absl::StatusOr<std::optional<MetricsAddress>> TakeMetricsPort(const std::string& value) {
  if (value.empty()) return std::nullopt;
  absl::StatusOr<MetricsAddress> address = ParseMetricsAddress(value);
  if (!address.ok()) return AsUsage(Annotate(address.status(), "--metrics-port"));
  return *std::move(address);
}

absl::StatusOr<std::unique_ptr<MetricsServer>> ServeMetrics(const std::optional<MetricsAddress>& address,
                                                            MetricsServer::Collect collect) {
  if (!address) return nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server, MetricsServer::Start(*address, std::move(collect)));
  PrintError("metrics: {}\n", Printable(server->url()));
  return server;
}

}  // namespace millrace::cli
