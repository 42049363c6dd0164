#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "net/event_loop.h"
#include "net/http_message.h"
#include "net/proxy.h"
#include "net/tls_identity.h"

/// This is an HTTP/1.1 client on event loops. It makes one attempt at a request and says precisely how it ended;
/// retrying is the caller's.

namespace millrace {

/// Says what a call is waiting for.
enum class HttpPhase { kQueued, kConnect, kFirstByte, kBody };

enum class HttpErrorKind {
  kNone,
  kConnect,      // no connection: unknown name, refused, unreachable, timed out
  kTls,          // the server's certificate or protocol is not acceptable; trying again does not help
  kProxy,        // the proxy refuses to pass the request on; trying again does not help
  kStale,        // a kept connection had ended before the response began: send again, on a fresh connection
  kReset,        // the connection broke
  kClosedEarly,  // the server closed the connection before the end of the response
  kTimeout,      // no first byte, or no more bytes, in time
  kMalformed,    // the response is not HTTP
  kTooLarge,     // a text body exceeded its limit; the beginning is in the result
  kRefused,      // the handler refused the head
  kCancelled,
};

struct HttpRequest {
  HttpEndpoint endpoint;
  HttpRequestHead head;  // with Host; Content-Length is added. Free of control characters
  ByteSpan body;         // must live until OnDone
  bool fresh_connection = false;
  bool moves_objects = false;                  // bytes of its bodies are signs of life (base/life_sign.h)
  std::chrono::milliseconds extra_timeout{0};  // the response may be so much later than the client's options say
};

/// Says where the body of a response is written.
class HttpBodySink {
 public:
  enum class Kind { kText, kBuffer, kRefuse };

  /// Writes the body into HttpResult::text, at most `limit` bytes.
  static HttpBodySink Text(size_t limit) { return {Kind::kText, {}, 0, limit, {}, {}}; }
  /// Writes the body after the first `skip` bytes straight into `buffer`, which must live until OnDone. When it is full
  /// and the body has more, the rest is not received: the call succeeds with `more`, and the connection is closed.
  /// `came` is called, on the call's loop, with the number of bytes in the buffer whenever more have come. That is some
  /// hundred KiB at a time, so that they are still in the caches of the CPU. It must not cancel the call.
  static HttpBodySink Into(MutableByteSpan buffer, uint64_t skip = 0, std::function<void(uint64_t)> came = {}) {
    return {Kind::kBuffer, buffer, skip, 0, std::move(came), {}};
  }
  /// Does the same into several buffers, one after the other, none of them empty. Several are filled by one call of the
  /// system, so that they may be small.
  static HttpBodySink IntoPlaces(const std::vector<MutableByteSpan>& places, std::function<void(uint64_t)> came = {}) {
    return {Kind::kBuffer, places.front(), 0, 0, std::move(came), {places.begin() + 1, places.end()}};
  }
  /// Writes the body nowhere: the call fails with kRefused.
  static HttpBodySink Refuse() { return {Kind::kRefuse, {}, 0, 0, {}, {}}; }

  Kind kind;
  MutableByteSpan buffer;
  uint64_t skip;
  size_t text_limit;
  std::function<void(uint64_t)> came;
  std::vector<MutableByteSpan> rest;  // further buffers
};

struct HttpResult {
  HttpErrorKind error = HttpErrorKind::kNone;
  std::string detail;       // of the error, for messages
  uint64_t body_bytes = 0;  // good bytes in the buffers, from the start of the first; also after an error
  uint64_t wire_bytes = 0;  // of the body received in all, skipped and text included
  bool more = false;        // the buffer was full before the body ended
  std::string text;
};

/// Gets the events of one call, on the call's loop.
class HttpResponseHandler {
 public:
  virtual ~HttpResponseHandler() = default;
  virtual void OnPhase(HttpPhase phase) = 0;
  /// The final response's head has come; returns where the body goes. It is not called when the call fails before.
  virtual HttpBodySink OnHead(HttpResponseHead head) = 0;
  /// This is the last event, exactly once, never inside HttpClient::Start. Neither the request's body nor the buffer is
  /// touched afterwards. An exception that it throws is only logged.
  virtual void OnDone(HttpResult result) = 0;
};

/// This is one request in flight.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  /// Ends the call soon with kCancelled, perhaps before Cancel returns. On the call's loop. Harmless when it has ended.
  virtual void Cancel() = 0;
  /// Returns the bytes of the response's body that have come. It is called on the call's loop.
  virtual uint64_t body_bytes() const = 0;
};

struct HttpClientOptions {
  int max_connections = 64;                              // to one endpoint, on each loop; more calls wait in order
  std::chrono::milliseconds connect_timeout{3'000};      // for each of: name, TCP, TLS
  std::chrono::milliseconds first_byte_timeout{15'000};  // from the request's last byte to the response's first
  std::chrono::milliseconds stall_timeout{10'000};       // without a byte of either body
  std::chrono::milliseconds keep_idle{30'000};           // connections without work are closed after this
  std::string ca_file;                                   // PEM of authorities that are trusted besides the system's
  bool only_ca_file = false;                             // the system's are not trusted
  std::optional<TlsIdentity> identity;                   // for servers that ask who calls
  HttpProxies proxies;                                   // none by default
  std::string tls_name;  // what servers' certificates must name; "" = the endpoint's host
};

/// Holds pools of keep-alive connections, one for each endpoint and loop. `loops` must outlive it. The destructor
/// cancels all calls and waits for their OnDone, so it must not run on a loop.
class HttpClient {
 public:
  HttpClient(EventLoops& loops, HttpClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Begins a call; on the thread of `loop`. `handler` must live until OnDone. If it throws, nothing has begun.
  std::shared_ptr<HttpCall> Start(EventLoop& loop, HttpRequest request, HttpResponseHandler& handler);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
