#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/log_exception.h"
#include "net/http_client.h"
#include "net/http_parser.h"
#include "net/tls.h"
#include "net/tls_stream.h"

// This is private to src/net: one connection of HttpClient.

namespace millrace {

class HttpConnection;

/// Holds a call as its connection sees it.
struct HttpJob : HttpCall {
  HttpJob(HttpRequest&& wanted, HttpResponseHandler& told) : request(std::move(wanted)), handler(&told) {}
  uint64_t body_bytes() const override { return received; }

  HttpRequest request;
  HttpResponseHandler* const handler;
  uint64_t received = 0;  // bytes of the response's body so far
};

inline void TellEnd(HttpResponseHandler& handler, HttpResult&& result) noexcept {
  try {
    handler.OnDone(std::move(result));
  } catch (const std::exception& error) {
    LogException("net", error);
  }
}

/// Returns the result of a call that ends because a step has thrown. It allocates nothing.
inline HttpResult BrokenByException() {
  HttpResult result;
  result.error = HttpErrorKind::kReset;
  result.detail = "out of memory";
  return result;
}

/// A connection needs this from its pool. All of it is on the loop's thread.
class HttpConnectionOwner {
 public:
  using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;
  using OnAddresses = absl::AnyInvocable<void(const boost::system::error_code&, const Addresses&)>;

  virtual ~HttpConnectionOwner() = default;
  virtual const HttpEndpoint& endpoint() const = 0;
  virtual const HttpClientOptions& options() const = 0;
  /// Returns nullptr without a proxy.
  virtual const HttpProxy* proxy() const = 0;
  /// Finds the addresses of the endpoint, or of its proxy; `done` may run at once.
  virtual void Resolve(OnAddresses done) = 0;
  /// None of the addresses works: look them up again next time.
  virtual void ForgetAddresses() = 0;
  /// The connection has ended its job and may serve another (`reusable`), or is closed. The job's OnDone comes
  /// afterwards.
  virtual void OnFree(HttpConnection& connection, bool reusable) noexcept = 0;
  /// The job's handler was called.
  virtual void OnEnded(const std::shared_ptr<HttpJob>& job) = 0;
};

/// This is a client's connection: it connects, then carries one exchange after the other. It is used on its loop's
/// thread only. Whatever happens, each job ends once, and not before every pending operation on its memory has
/// returned. A step that throws (too little memory) ends the job with kReset, as a break of the connection does.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  /// `tls` is null for plain HTTP. `owner` outlives every job.
  HttpConnection(boost::asio::io_context& context, HttpConnectionOwner& owner,
                 std::shared_ptr<boost::asio::ssl::context> tls, size_t first_address);

  /// Connects, then carries out the job. Throws if nothing has begun: then OnFree and OnDone do not come.
  void Open(std::shared_ptr<HttpJob> job);
  /// Carries out the job on this open, idle connection. Throws as Open does; the connection is closed then.
  void Run(std::shared_ptr<HttpJob> job);
  void Cancel();
  /// Closes an idle connection.
  void Close();
  /// Returns false when the server has closed this idle connection, as far as the kernel knows.
  bool LooksAlive();

 private:
  using Context = boost::asio::io_context;
  using Error = boost::system::error_code;
  using Socket = TlsStream::Socket;
  using SteadyTime = std::chrono::steady_clock::time_point;

  static constexpr size_t kMaxSinkParts = 16;  // of one read
  using SinkParts = absl::InlinedVector<boost::asio::mutable_buffer, kMaxSinkParts>;

  enum class Goes { kNowhere, kToBuffer, kToSink };  // the next of the body, if anything is missing
  enum class Stage { kResolve, kConnect, kTunnel, kHandshake, kSend, kFirstByte, kBody, kIdle };

  /// This is a pending operation with this connection's or the job's memory. It lives in the operation's handler, and
  /// counts until that runs or is destroyed without having run.
  class Pending;

  // Runs a step of the job.
  template <typename Step>
  void Guard(Step step);
  template <typename Step>
  void Start(Step step);
  void Break() noexcept;

  Socket& socket() { return tls_stream_ ? tls_stream_->next_layer() : socket_; }
  // Returns the name that the server's certificate must have.
  const std::string& tls_name() const;
  // Returns "store:443", or "the proxy p:3128 of HTTPS_PROXY".
  std::string PeerName() const;
  template <typename Use>
  void WithStream(Use use);

  void BeginJob(std::shared_ptr<HttpJob> job);
  void OnResolved(const Error& error, const HttpConnectionOwner::Addresses& addresses);
  void ConnectNext(const Error& last_error);
  void OnConnected();
  void OpenTunnel();
  void ReadTunnelAnswer();
  void OnTunnelAnswer(const Error& error, size_t bytes);
  void BeginTls();
  void OnHandshake(const Error& error);
  void SendRequest();
  void WriteSome();
  void OnWritten(const Error& error, size_t bytes);

  void ReadIntoBuffer();
  void OnBufferRead(const Error& error, size_t bytes);
  bool OnReadDone(const Error& error);
  void ParseHead();
  bool AcceptHead(ParsedResponse response);
  void OnStreamEnd(const Error& error);

  // These are for the body (http_connection_body.cc).
  MutableByteSpan PlaceAt(size_t place) const;
  MutableByteSpan SinkSpace() const;
  void FillSink(size_t bytes);
  SinkParts PartsOfSink(uint64_t most) const;
  void UseBuffered();
  bool UseChunked();
  bool Deliver(std::string_view data);
  void ReadIntoSink(uint64_t most);
  void OnSinkRead(const Error& error, size_t bytes);
  void OnSinkBytes(size_t bytes);
  Goes WhereBodyGoes() const;
  void ContinueBody();
  void YieldTurn();

  void Complete();
  void Fail(HttpErrorKind kind, std::string detail);
  void EndIfDrained();
  void CloseSocket();

  void SetDeadline(Stage stage, std::chrono::milliseconds allowance);
  void ArmTimer();
  void OnTimer();
  void OnDeadline();

  Context& context_;
  HttpConnectionOwner& owner_;
  std::shared_ptr<boost::asio::ssl::context> tls_;
  Socket socket_;
  std::optional<TlsStream> tls_stream_;
  bool reads_now_ = false;  // of a plain socket: a read that finds nothing returns
  HttpConnectionOwner::Addresses addresses_;
  size_t next_address_;
  size_t addresses_tried_ = 0;

  // One timer serves for all deadlines. It is left running while deadlines move away, and looks again when it fires.
  boost::asio::steady_timer timer_;
  SteadyTime deadline_ = SteadyTime::max();
  SteadyTime timer_due_ = SteadyTime::max();
  Stage stage_ = Stage::kIdle;

  // These belong to the job.
  std::shared_ptr<HttpJob> job_;
  bool reused_ = false;  // the connection has served a job before
  int operations_ = 0;   // pending
  bool guarded_ = false;
  bool ending_ = false;  // the result is settled; waiting for pending operations
  bool keep_alive_ = false;
  HttpResult result_;

  std::string head_text_;
  size_t head_sent_ = 0;
  size_t body_sent_ = 0;

  std::vector<char> buffer_;  // received and not yet used: [begin_, end_)
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t searched_ = 0;
  int interim_responses_ = 0;
  bool head_done_ = false;
  bool received_any_ = false;
  HttpBodyFraming framing_ = HttpBodyFraming::kNone;
  uint64_t body_left_ = 0;  // of kLength
  HttpChunkDecoder chunks_;
  HttpBodySink sink_ = HttpBodySink::Refuse();
  uint64_t skip_left_ = 0;
  size_t place_ = 0;  // of the sink: the one that is being filled
  size_t place_used_ = 0;
};

class HttpConnection::Pending {
 public:
  explicit Pending(std::shared_ptr<HttpConnection> self) : self_(std::move(self)) { ++self_->operations_; }
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&&) = delete;
  ~Pending() {
    if (!self_) return;
    --self_->operations_;
    if (!self_->guarded_) self_->Break();
  }

  /// The operation has ended: runs `step` with the connection, unless the job has ended meanwhile.
  template <typename Step>
  void End(Step step) {
    const std::shared_ptr<HttpConnection> self = std::move(self_);
    --self->operations_;
    self->Guard([&] { self->ending_ ? self->EndIfDrained() : step(*self); });
  }

 private:
  std::shared_ptr<HttpConnection> self_;
};

template <typename Step>
void HttpConnection::Guard(Step step) {
  if (guarded_) return step();  // what runs it catches
  guarded_ = true;
  try {
    step();
    guarded_ = false;
  } catch (const std::exception& error) {
    guarded_ = false;
    LogException("net", error);
    Break();
  }
}

}  // namespace millrace
