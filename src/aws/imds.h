#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "aws/endpoint.h"
#include "net/text_answer.h"

namespace millrace {

/// This is a session with the instance metadata service of EC2, by version 2 of its protocol alone: nothing is read
/// without a token. It makes requests and keeps the token; the caller sends them, and decides when a token is renewed:
///
///   ImdsSession session(service);
///   TextAnswer answer = AskForText(http, loop, session.TokenRequest()).get();
///   RETURN_IF_ERROR(session.TakeToken(answer.result.text, answer.head.headers, absl::Now()));
///   answer = AskForText(http, loop, session.ReadRequest("/latest/meta-data/instance-id")).get();
///
/// It has no I/O, no clock, no threads.
class ImdsSession {
 public:
  explicit ImdsSession(EndpointUrl service) : service_(std::move(service)) {}

  const EndpointUrl& service() const { return service_; }

  /// Asks for a token of six hours, the longest that there is.
  TextRequest TokenRequest() const;
  /// Takes the answer to it, if its status is 200. An error, which completes "the service gave no token: ...", changes
  /// nothing.
  absl::Status TakeToken(std::string_view text, const HttpHeaders& headers, absl::Time now);
  bool has_token() const { return !token_.empty(); }
  absl::Time token_expires() const { return expires_; }
  void DropToken() { token_.clear(); }

  /// Asks for a document, with the token; `path` is encoded and begins with "/latest".
  TextRequest ReadRequest(std::string_view path) const;

 private:
  TextRequest Request(std::string_view method, std::string_view path) const;

  EndpointUrl service_;
  std::string token_;
  absl::Time expires_ = absl::InfinitePast();
};

}  // namespace millrace
