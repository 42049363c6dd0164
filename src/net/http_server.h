#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "net/event_loop.h"
#include "net/http_message.h"
#include "net/tls_identity.h"

/// This is an HTTP/1.1 server on event loops: keep-alive, pipelining, chunked request bodies, 100-continue, TLS. It
/// knows nothing of what is served: a handler gets requests and answers each with a head and a list of steps.

namespace millrace {

/// The steps send bytes of the body. A file must not shrink below its range while it is sent (the connection is cut if
/// it does).
struct SendText {
  std::string text;
};
struct SendBytes {
  ByteSpan bytes;
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
};
struct SendFile {
  std::shared_ptr<const UniqueFd> file;
  ByteRange range;
};
/// Pauses once everything before it was handed to the kernel.
struct SendPause {
  std::chrono::nanoseconds duration{};
};
/// Sets the pace of the body from here on; 0 = as fast as it goes.
struct SendRate {
  uint64_t bytes_per_second = 0;
};
/// Ends the connection after all bytes before it: by FIN, or by RST once the peer has received them.
struct EndConnection {
  bool reset = false;
};
using ReplyStep = std::variant<SendText, SendBytes, SendFile, SendPause, SendRate, EndConnection>;

/// This is an answer. The server adds Date unless it has one, Content-Length and Connection. To a HEAD request (and
/// with status 204 or 304) the bytes of the body are counted but not sent. When the body ends short of
/// `content_length`, the connection is closed.
struct HttpReply {
  int status = 200;
  HttpHeaders headers;
  std::vector<ReplyStep> body;
  std::optional<uint64_t> content_length;              // of the head; default: the bytes in `body`
  std::chrono::steady_clock::time_point not_before{};  // nothing leaves earlier
  bool send_head = true;                               // false: the steps are carried out without a head
  std::optional<uint64_t> head_bytes;                  // no more of the head is sent
  bool chunked = false;  // the head says so in place of a length; the steps hold the framing too
};

/// These return the bytes of a step (0 for one without bytes), and of all steps of a body.
uint64_t StepSize(const ReplyStep& step);
uint64_t BodySize(const std::vector<ReplyStep>& body);

class ServerConnection;

/// This is the right to answer one request. Move-only. If it is dropped without Send, it closes the connection.
class HttpResponder {
 public:
  explicit HttpResponder(std::shared_ptr<ServerConnection> connection);
  ~HttpResponder();
  HttpResponder(HttpResponder&&) noexcept;
  HttpResponder& operator=(HttpResponder&&) = delete;

  /// Call this once; from any thread while the server lives (its destructor waits for all responders). The answer may
  /// be sent before the request's body has arrived: the rest of the body is then dropped, or the connection closed if
  /// that is much.
  void Send(HttpReply reply);

 private:
  std::shared_ptr<ServerConnection> connection_;
};

/// This is one request in flight. It is called on the connection's loop, and destroyed there, after the answer or when
/// the connection is lost.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  /// Takes the next bytes of the body, without framing. It is not called any more once an answer was sent.
  virtual void OnBody(ByteSpan bytes) = 0;
  /// The body is complete (at once, if there is none).
  virtual void OnBodyEnd() = 0;
};

/// Holds what a request says besides its head.
struct HttpRequestFacts {
  std::optional<uint64_t> content_length;  // absent for a chunked body; 0 without a body
  bool expects_continue = false;  // the client waits for "100 Continue", sent unless there is an answer at once
  std::string peer;               // the client's address without its port; of IPv6 the network, the first 64 bits
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// A request's head has arrived. Called on loop threads, concurrently; must not block for long.
  virtual std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                                  HttpResponder responder) = 0;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // address or name to listen on
  uint16_t port = 0;               // 0: any free one
  std::optional<TlsIdentity> tls;
  std::string
      client_ca_pem;  // with `tls`: authorities that clients' certificates must come from; "" = none is asked for
  std::chrono::milliseconds idle_timeout = std::chrono::minutes(2);  // of a connection on which no byte moves
  /// This bounds a TLS handshake and the first head, from the connection's begin, and each later head, from its first
  /// byte.
  std::chrono::milliseconds head_timeout = std::chrono::seconds(15);
  /// These bound all connections, and those of one address (HttpRequestFacts::peer). If there are as many, a new
  /// connection takes the place of one that waits for a request. Those that have sent no request yet go first, and of
  /// these the oldest. If there is none, it takes the place of one whose peer has taken nothing of its answer for a
  /// second. If every other connection has a request in flight, the new one is closed. Each loop keeps its part of both
  /// limits, rounded up.
  size_t max_connections = SIZE_MAX;
  size_t max_per_address = SIZE_MAX;
  /// A connection that made room before it asked for anything is closed so much later, and nothing reads it until then.
  /// A peer that opens a new connection for each closed one is slowed down by that. At most 1,024 of each loop wait.
  std::chrono::milliseconds close_delay = std::chrono::seconds(1);
};

/// Listens from Start to its destructor, which closes every connection and waits until no callback runs and no
/// responder is left (so it must not run on a loop). `loops` and `handler` must outlive it. Request heads are limited
/// to 64 KiB.
class HttpServer {
 public:
  /// Returns AlreadyExists when the port is in use, InvalidArgument for a host that is not an address of this machine.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(EventLoops& loops, HttpServerOptions options,
                                                           HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
