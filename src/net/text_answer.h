#pragma once

#include <cstddef>
#include <future>

#include "net/event_loop.h"
#include "net/http_client.h"

namespace millrace {

/// What came of a request whose answer is a text.
struct TextAnswer {
  int status = 0;  // 0 if no answer began
  HttpResult result;
};

/// Begins one request on `loop`, for callers that wait for its answer: on threads of their own, never on a loop. The
/// answer has at most `max_text` bytes. `client`, `loop` and the request's body live until the future is ready.
std::future<TextAnswer> AskForText(HttpClient& client, EventLoop& loop, HttpRequest request, size_t max_text);

}  // namespace millrace
