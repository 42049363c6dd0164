#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "net/http_client.h"

namespace millrace {

struct FetchAnswer {
  int status = 0;
  std::string text;
  std::optional<absl::Time> date;  // by the clock of the server, if it tells
};

/// Makes a call and waits for its answer, which is text of up to 16 MiB. Unavailable if none came in time. Blocks; not
/// on an event loop.
absl::StatusOr<FetchAnswer> FetchText(EventLoop& loop, HttpClient& http, HttpEndpoint endpoint, HttpRequestHead head,
                                      const std::string& body, std::chrono::milliseconds limit);

}  // namespace millrace
