#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/metrics_text.h"

namespace millrace {

/// Says where metrics are served.
struct MetricsAddress {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
};

/// Parses "9400" (of this machine only), "HOST:9400" or "[::1]:9400". Returns InvalidArgument if the text is something
/// else.
absl::StatusOr<MetricsAddress> ParseMetricsAddress(std::string_view text);

/// Answers `GET /metrics` with the program's metrics, on a thread of its own, to at most kMaxConnections
/// clients at a time; further ones are cut off. Serves until it is destroyed.
class MetricsServer {
 public:
  static constexpr size_t kMaxConnections = 32;

  /// Gathers the values of now. Called on the server's thread, one call at a time; it must not wait for long.
  using Collect = std::function<void(MetricsText* text)>;

  /// The values that `collect` reads outlive the server. Returns AlreadyExists if the port is in use, InvalidArgument
  /// for a host that is not an address of this machine.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const MetricsAddress& address, Collect collect);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  uint16_t port() const;
  /// Returns "http://127.0.0.1:9400/metrics".
  const std::string& url() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
