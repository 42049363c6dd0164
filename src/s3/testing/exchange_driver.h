#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "s3/exchange.h"

namespace millrace {

/// A scripted store answers this to one request.
struct ScriptedAnswer {
  int status = 200;  // 0: no head arrives
  HttpHeaders headers;
  std::string body;
  HttpErrorKind error = HttpErrorKind::kNone;  // how the call ends
  size_t cut = std::string::npos;              // with an error: bytes of the body before it
  bool has_length = true;                      // Content-Length is sent
  std::function<void()> came = {};             // when the body is in its buffer, and its end was reported
};

/// Runs an exchange against a store that is a function, without I/O or time: waits are only written down. It takes only
/// the turns at a store that is away.
class ExchangeDriver {
 public:
  using Store = std::function<ScriptedAnswer(const HttpRequest&)>;

  explicit ExchangeDriver(Store store) : store_(std::move(store)) {}

  void Run(S3Exchange& exchange);

  absl::Time now = absl::FromUnixSeconds(1'767'225'600);  // 2026-01-01
  std::vector<HttpRequest> requests;                      // bodies of requests are not copied
  std::vector<absl::Duration> waits;
  bool finish = true;  // call Finish at the end

 private:
  HttpResult Call(S3Exchange& exchange, const HttpRequest& request);

  Store store_;
};

/// Returns a context for tests: a custom endpoint and made-up keys.
S3Config TestS3Config();

}  // namespace millrace
