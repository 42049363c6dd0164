#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "net/event_loop.h"
#include "net/http_client.h"

/// Requests whose answers are texts: documents, tokens, numbers. Objects go by http_client.h itself.
///
///   const TextAnswer answer = AskForText(client, loop, {.endpoint = server, .head = {"GET", "/metrics", {}}}).get();
///   if (answer.head.status == 200) Read(answer.result.text);

namespace millrace {

struct TextRequest {
  HttpEndpoint endpoint;
  HttpRequestHead head;  // Host is added if it is absent, and a User-Agent
  std::string body;
  /// A kept connection may have ended; a new one costs nothing for requests that are rare. Without it, a request whose
  /// connection had ended is sent again, once.
  bool fresh_connection = true;
  size_t max_text = 64 << 10;          // bytes of the answer
  std::chrono::milliseconds limit{0};  // until the whole answer is there; 0: the limits of the client apply alone
};

/// Says how a TextRequest ended.
struct TextAnswer {
  HttpResponseHead head;  // status 0 if no answer began
  absl::Time begun;       // when the head came
  HttpResult result;

  /// Returns why there is no whole answer, for messages; "" if there is one.
  std::string problem() const;
  /// Returns the clock of the server, if it says it.
  std::optional<absl::Time> date() const;
};

/// Begins a request; on the thread of `loop`. `done` is called once, on that loop, after this has returned; if this
/// throws, it is never called. The call can be cancelled. `client` and `loop` live until `done` is called.
std::shared_ptr<HttpCall> BeginText(HttpClient& client, EventLoop& loop, TextRequest request,
                                    absl::AnyInvocable<void(TextAnswer)> done);

/// Does the same for callers that wait for the answer: on threads of their own, never on a loop.
std::future<TextAnswer> AskForText(HttpClient& client, EventLoop& loop, TextRequest request);

}  // namespace millrace
