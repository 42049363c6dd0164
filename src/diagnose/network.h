#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "net/http_client.h"
#include "net/runtime.h"

/// These functions take the steps to a server one by one, each of them blocking, for a few seconds at most.

namespace millrace {

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  std::string text;  // "192.0.2.1"
};

/// Returns the addresses of a name. NotFound with the resolver's reason.
absl::StatusOr<std::vector<SocketAddress>> ResolveName(const HttpEndpoint& server);

/// Connects to the first address that answers, and closes. The result says to which, and how long it took.
absl::StatusOr<std::string> TryConnect(const std::vector<SocketAddress>& addresses);

/// Returns the answer of a server to a request without a signature: any answer shows that it works.
struct ProbeAnswer {
  HttpErrorKind error = HttpErrorKind::kNone;
  std::string detail;  // of the error
  int status = 0;
  std::string server;                          // its name for itself
  std::string region;                          // x-amz-bucket-region
  std::optional<absl::Duration> clock_offset;  // its clock minus ours, to a second; absent without a Date
};
ProbeAnswer Probe(Runtime& runtime, const HttpEndpoint& server, const std::string& host, const std::string& path,
                  const std::string& ca_file, const HttpProxies& proxies);

}  // namespace millrace
