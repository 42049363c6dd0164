#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "net/http_client.h"

namespace millrace {

/// Describes one HTTP request in the log of MILLRACE_LOG=debug, as one line:
///
///   GET https://bucket.s3.eu-west-1.amazonaws.com/key range=bytes=0-99 status=206 ms=31.5 first_byte_ms=30.2 bytes=100
///   attempt=1 request=4442587FB7D0A2F9
///
/// Only Range and the ids of the answer appear of the headers, and no parameters of a query that may be secret: so no
/// credentials, tokens and signatures are logged. Pure.
class RequestLog {
 public:
  /// The part of the address that is logged: the path may be a secret if the service hands out credentials.
  enum class Shows { kTarget, kServer };

  /// `attempt` is 1 for the first request of an operation. `hedge` means a second one beside another.
  RequestLog(const HttpRequest& request, Shows shows, int attempt, bool hedge, absl::Time now);

  void OnHead(const HttpResponseHead& head, absl::Time now);
  /// Returns the line, for a request that ended in this way.
  std::string Line(const HttpResult& result, absl::Time now) const;

 private:
  std::string text_;  // of the request
  const std::string attempt_;
  const absl::Time begun_;
  std::optional<absl::Time> answered_;
  int status_ = 0;
  std::string ids_;
};

}  // namespace millrace
