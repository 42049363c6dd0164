#include "net/http_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "base/life_sign.h"

namespace millrace {

namespace asio = boost::asio;

namespace {

// Heads of S3 are shorter than 1 KiB. Bytes that are received beyond the head are copied, so this is kept small.
constexpr size_t kHeadBufferBytes = 4 * 1024;
constexpr size_t kTextBufferBytes = 32 * 1024;
constexpr size_t kUsualHeadBytes = 1024;  // of a request
constexpr int kMaxInterimResponses = 8;

bool IsEnd(const boost::system::error_code& error) {
  return error == asio::error::eof || error == asio::ssl::error::stream_truncated;
}

void AddAuthorization(const HttpProxy& proxy, std::string& out) {
  if (!proxy.authorization.empty()) out.append("Proxy-Authorization: ").append(proxy.authorization).append("\r\n");
}

std::string ProxyRefusal(int status) {
  return fmt::format("the proxy answered HTTP {}{}", status,
                     status == 407 ? ": it wants a user and a password, as in http://user:password@proxy:3128" : "");
}

// With a proxy, which is not null for plain HTTP alone, the target names the server, too.
void Serialize(const HttpRequest& request, const HttpProxy* proxy, std::string& out) {
  const HttpRequestHead& head = request.head;
  out.clear();
  out.reserve(kUsualHeadBytes);
  out.append(head.method).append(" ");
  if (proxy != nullptr) out.append("http://").append(HostHeader(request.endpoint));
  out.append(head.target).append(" HTTP/1.1\r\n");
  if (proxy != nullptr) AddAuthorization(*proxy, out);
  head.headers.AppendLines(&out);
  if (!request.body.empty() || head.method == "PUT" || head.method == "POST") {
    out.append("Content-Length: ").append(std::to_string(request.body.size())).append("\r\n");
  }
  out.append("\r\n");
}

}  // namespace

HttpConnection::HttpConnection(asio::io_context& context, HttpConnectionOwner& owner,
                               std::shared_ptr<asio::ssl::context> tls, size_t first_address)
    : context_(context),
      owner_(owner),
      tls_(std::move(tls)),
      socket_(context),
      next_address_(first_address),
      timer_(context),
      buffer_(kHeadBufferBytes) {}

template <typename Use>
void HttpConnection::WithStream(Use use) {
  if (tls_stream_) {
    use(*tls_stream_);
  } else {
    use(socket_);
  }
}

template <typename Step>
void HttpConnection::Start(Step step) {
  const bool outer = std::exchange(guarded_, true);
  try {
    step();
    guarded_ = outer;
  } catch (const std::exception& error) {
    guarded_ = outer;
    CloseSocket();
    // Pending operations end the job later; OnDone must not come from here.
    if (operations_ > 0) {
      LogException("net", error);
      return Break();
    }
    job_ = nullptr;
    deadline_ = SteadyTime::max();
    throw;
  }
}

// ---- Connecting

void HttpConnection::Open(std::shared_ptr<HttpJob> job) {
  BeginJob(std::move(job));
  Start([&] {
    job_->handler->OnPhase(HttpPhase::kConnect);
    SetDeadline(Stage::kResolve, owner_.options().connect_timeout);
    // Weak: a connection that was cancelled meanwhile is gone.
    owner_.Resolve([weak = weak_from_this()](const Error& error, const HttpConnectionOwner::Addresses& addresses) {
      if (const std::shared_ptr<HttpConnection> self = weak.lock()) {
        self->Guard([&] { self->OnResolved(error, addresses); });
      }
    });
  });
}

void HttpConnection::OnResolved(const Error& error, const HttpConnectionOwner::Addresses& addresses) {
  if (!job_ || ending_) return;
  if (error) {
    return Fail(HttpErrorKind::kConnect,
                fmt::format("cannot resolve the host name{}: {}",
                            owner_.proxy() != nullptr ? fmt::format(" of {}", PeerName()) : "", error.message()));
  }
  addresses_ = addresses;
  ConnectNext({});
}

void HttpConnection::ConnectNext(const Error& last_error) {
  if (addresses_tried_ == addresses_.size()) {
    owner_.ForgetAddresses();
    return Fail(HttpErrorKind::kConnect, fmt::format("cannot connect to {}: {}", PeerName(), last_error.message()));
  }
  const asio::ip::tcp::endpoint address = addresses_[next_address_++ % addresses_.size()];
  ++addresses_tried_;
  SetDeadline(Stage::kConnect, owner_.options().connect_timeout);
  Error error;
  socket_.close(error);
  socket_.open(address.protocol(), error);
  auto done = [pending = Pending(shared_from_this())](const Error& result) mutable {
    pending.End([&](HttpConnection& self) { result ? self.ConnectNext(result) : self.OnConnected(); });
  };
  if (error) {
    // There may be no more descriptors, for example. It is reported later, so that a queue of such calls does not
    // become a recursion.
    asio::post(context_, [done = std::move(done), error]() mutable { done(error); });
  } else {
    socket_.async_connect(address, std::move(done));
  }
}

std::string HttpConnection::PeerName() const {
  const HttpProxy* const proxy = owner_.proxy();
  const HttpEndpoint& peer = proxy != nullptr ? proxy->server : owner_.endpoint();
  const std::string name = fmt::format("{}:{}", peer.host, peer.port);
  return proxy != nullptr ? fmt::format("the proxy {} of {}", name, proxy->variable) : name;
}

const std::string& HttpConnection::tls_name() const {
  const std::string& name = owner_.options().tls_name;
  return name.empty() ? owner_.endpoint().host : name;
}

void HttpConnection::OnConnected() {
  Error ignored;  // a socket without the option still works
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (!tls_) {
    Error error;  // of a socket that was closed meanwhile, say
    socket_.non_blocking(true, error);
    reads_now_ = !error;
    return SendRequest();
  }
  return owner_.proxy() != nullptr ? OpenTunnel() : BeginTls();
}

// Asks the proxy for a way to the server.
void HttpConnection::OpenTunnel() {
  const std::string to = HostAndPort(owner_.endpoint().host, owner_.endpoint().port);
  head_text_ = fmt::format("CONNECT {} HTTP/1.1\r\nHost: {}\r\n", to, to);
  AddAuthorization(*owner_.proxy(), head_text_);
  head_text_.append("\r\n");
  SetDeadline(Stage::kTunnel, owner_.options().connect_timeout);
  asio::async_write(socket_, asio::buffer(head_text_),
                    [pending = Pending(shared_from_this())](const Error&, size_t) mutable {
                      // If it failed, the read fails, too.
                      pending.End([](HttpConnection& self) { self.ReadTunnelAnswer(); });
                    });
}

void HttpConnection::ReadTunnelAnswer() {
  socket_.async_read_some(asio::buffer(buffer_.data() + end_, buffer_.size() - end_),
                          [pending = Pending(shared_from_this())](const Error& error, size_t bytes) mutable {
                            pending.End([&](HttpConnection& self) { self.OnTunnelAnswer(error, bytes); });
                          });
}

void HttpConnection::OnTunnelAnswer(const Error& error, size_t bytes) {
  if (error) {
    return Fail(HttpErrorKind::kConnect, fmt::format("{} gave no way to the server: {}", PeerName(), error.message()));
  }
  end_ += bytes;
  const std::string_view received(buffer_.data(), end_);
  const size_t length = FindHttpHeadEnd(received, searched_);
  searched_ = received.size();
  if (length == 0 && end_ < buffer_.size()) return ReadTunnelAnswer();
  const absl::StatusOr<ParsedResponse> answer = ParseHttpResponseHead(received.substr(0, length), /*to_head=*/true);
  if (!answer.ok()) return Fail(HttpErrorKind::kProxy, fmt::format("{} does not answer as HTTP has it", PeerName()));
  const int status = answer->head.status;
  if (status >= 500) return Fail(HttpErrorKind::kConnect, ProxyRefusal(status));
  if (status / 100 != 2) return Fail(HttpErrorKind::kProxy, ProxyRefusal(status));
  begin_ = end_ = searched_ = 0;
  BeginTls();
}

void HttpConnection::BeginTls() {
  tls_stream_.emplace(std::move(socket_), tls_->native_handle(), tls_name());
  SetDeadline(Stage::kHandshake, owner_.options().connect_timeout);
  tls_stream_->async_handshake([pending = Pending(shared_from_this())](const Error& error, size_t) mutable {
    pending.End([&](HttpConnection& self) { self.OnHandshake(error); });
  });
}

void HttpConnection::OnHandshake(const Error& error) {
  if (!error) return SendRequest();
  if (error.category() != asio::error::get_ssl_category()) {
    return Fail(HttpErrorKind::kConnect, fmt::format("the TLS handshake was cut off: {}", error.message()));
  }
  const std::string problem = CertificateProblem(tls_stream_->native_handle());
  Fail(HttpErrorKind::kTls,
       problem.empty() ? fmt::format("TLS handshake failed: {}", error.message())
                       : fmt::format("the server's certificate is not trusted for {}: {}", tls_name(), problem));
}

// ---- Request

void HttpConnection::BeginJob(std::shared_ptr<HttpJob> job) {
  job_ = std::move(job);
  ending_ = false;
  keep_alive_ = false;
  result_ = {};
  head_sent_ = body_sent_ = 0;
  begin_ = end_ = searched_ = 0;
  interim_responses_ = 0;
  head_done_ = received_any_ = false;
  skip_left_ = 0;
}

void HttpConnection::Run(std::shared_ptr<HttpJob> job) {
  BeginJob(std::move(job));
  reused_ = true;
  Start([this] { SendRequest(); });
}

void HttpConnection::SendRequest() {
  Serialize(job_->request, tls_ ? nullptr : owner_.proxy(), head_text_);
  job_->handler->OnPhase(HttpPhase::kFirstByte);
  WriteSome();
  // Reading begins at once: a server may answer, and close, before it has taken the whole body.
  ReadIntoBuffer();
}

void HttpConnection::WriteSome() {
  const ByteSpan body = job_->request.body;
  SetDeadline(Stage::kSend, owner_.options().stall_timeout);
  const std::array<asio::const_buffer, 2> rest = {
      asio::const_buffer(head_text_.data() + head_sent_, head_text_.size() - head_sent_),
      asio::const_buffer(body.data() + body_sent_, body.size() - body_sent_)};
  WithStream([&](auto& stream) {
    stream.async_write_some(rest, [pending = Pending(shared_from_this())](const Error& error, size_t bytes) mutable {
      pending.End([&](HttpConnection& self) { self.OnWritten(error, bytes); });
    });
  });
}

void HttpConnection::OnWritten(const Error& error, size_t bytes) {
  // The server may have said why before it closed: what the read finds decides. It fails soon, too.
  if (error) return;
  const size_t of_head = std::min(bytes, head_text_.size() - head_sent_);
  head_sent_ += of_head;
  body_sent_ += bytes - of_head;
  if (job_->request.moves_objects) MovedBytes(bytes - of_head);
  if (head_sent_ < head_text_.size() || body_sent_ < job_->request.body.size()) return WriteSome();
  if (!head_done_) SetDeadline(Stage::kFirstByte, owner_.options().first_byte_timeout + job_->request.extra_timeout);
}

// ---- Response

void HttpConnection::ReadIntoBuffer() {
  if (begin_ == end_) begin_ = end_ = 0;
  size_t capacity = std::max(buffer_.size(), head_done_ ? kTextBufferBytes : kHeadBufferBytes);
  if (end_ == capacity) capacity *= 2;  // a long head
  buffer_.resize(capacity);
  size_t space = capacity - end_;
  if (!head_done_) {
    space = std::min(space, kHeadBufferBytes);
  } else if (framing_ == HttpBodyFraming::kLength) {
    space = std::min<uint64_t>(space, body_left_);
  }
  WithStream([&](auto& stream) {
    stream.async_read_some(asio::buffer(buffer_.data() + end_, space),
                           [pending = Pending(shared_from_this())](const Error& error, size_t bytes) mutable {
                             pending.End([&](HttpConnection& self) { self.OnBufferRead(error, bytes); });
                           });
  });
}

bool HttpConnection::OnReadDone(const Error& error) {
  if (error) {
    OnStreamEnd(error);
    return false;
  }
  received_any_ = true;
  return true;
}

void HttpConnection::OnBufferRead(const Error& error, size_t bytes) {
  if (!OnReadDone(error)) return;
  end_ += bytes;
  if (!head_done_) return ParseHead();
  SetDeadline(Stage::kBody, owner_.options().stall_timeout + job_->request.extra_timeout);
  UseBuffered();
}

void HttpConnection::ParseHead() {
  for (;;) {
    const std::string_view received(buffer_.data() + begin_, end_ - begin_);
    const size_t length = FindHttpHeadEnd(received, searched_);
    if (length == 0) {
      // This is a TLS record with an alert, as servers send it that got a request instead of a handshake.
      if (!tls_ && received.starts_with("\x15\x03")) {
        return Fail(HttpErrorKind::kTls, "the server speaks TLS (https), and does not understand plain http");
      }
      searched_ = received.size();
      if (received.size() >= kMaxHttpHeadBytes)
        return Fail(HttpErrorKind::kMalformed, "the response's head is too long");
      return ReadIntoBuffer();
    }
    absl::StatusOr<ParsedResponse> response =
        ParseHttpResponseHead(received.substr(0, length), job_->request.head.method == "HEAD");
    if (!response.ok()) return Fail(HttpErrorKind::kMalformed, std::string(response.status().message()));
    begin_ += length;
    searched_ = 0;
    if (!response->interim()) {
      if (AcceptHead(*std::move(response))) UseBuffered();
      return;
    }
    if (response->head.status == 101 || ++interim_responses_ > kMaxInterimResponses) {
      return Fail(HttpErrorKind::kMalformed, fmt::format("unexpected interim response {}", response->head.status));
    }
  }
}

bool HttpConnection::AcceptHead(ParsedResponse response) {
  head_done_ = true;
  if (response.head.status == 407 && !tls_ && owner_.proxy() != nullptr) {
    Fail(HttpErrorKind::kProxy, ProxyRefusal(response.head.status));
    return false;
  }
  keep_alive_ = response.keep_alive;
  framing_ = response.framing;
  body_left_ = response.head.content_length.value_or(0);
  chunks_ = {};
  SetDeadline(Stage::kBody, owner_.options().stall_timeout + job_->request.extra_timeout);
  job_->handler->OnPhase(HttpPhase::kBody);
  sink_ = job_->handler->OnHead(std::move(response.head));
  skip_left_ = sink_.skip;
  place_ = place_used_ = 0;
  if (sink_.kind != HttpBodySink::Kind::kRefuse) return true;
  Fail(HttpErrorKind::kRefused, "the response was refused");
  return false;
}

void HttpConnection::OnStreamEnd(const Error& error) {
  // Over TLS the end must be authenticated: stream_truncated is not eof.
  if (head_done_ && framing_ == HttpBodyFraming::kUntilClose && error == asio::error::eof) return Complete();
  if (reused_ && !received_any_)
    return Fail(HttpErrorKind::kStale, "the kept connection had been closed by the server");
  const std::string_view where = head_done_      ? "within the response's body"
                                 : received_any_ ? "within the response's head"
                                                 : "before the response";
  // With TLS 1.3 a server looks at the client's certificate when the client believes the handshake over.
  if (!head_done_ && error.category() == asio::error::get_ssl_category() && !received_any_) {
    return Fail(HttpErrorKind::kTls, fmt::format("the server ended TLS: {}", error.message()));
  }
  if (IsEnd(error)) return Fail(HttpErrorKind::kClosedEarly, fmt::format("the server closed the connection {}", where));
  Fail(HttpErrorKind::kReset, fmt::format("the connection broke {}: {}", where, error.message()));
}

// ---- End of a job

void HttpConnection::Complete() {
  ending_ = true;
  // Nothing could be continued after bytes beyond the response, a body cut off, or a request not yet sent in full.
  const bool clean = begin_ == end_ && !result_.more && operations_ == 0 && head_sent_ == head_text_.size() &&
                     body_sent_ == job_->request.body.size();
  if (!clean) keep_alive_ = false;
  if (!keep_alive_) CloseSocket();
  EndIfDrained();
}

void HttpConnection::Fail(HttpErrorKind kind, std::string detail) {
  if (!job_ || ending_) return;
  ending_ = true;
  keep_alive_ = false;
  result_.error = kind;
  result_.detail = std::move(detail);
  CloseSocket();
  EndIfDrained();
}

void HttpConnection::EndIfDrained() {
  if (operations_ > 0) return;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  const std::shared_ptr<HttpJob> job = std::move(job_);
  HttpResult result = std::move(result_);
  stage_ = Stage::kIdle;
  deadline_ = SteadyTime::max();
  HttpConnectionOwner& owner = owner_;
  owner.OnFree(*this, keep_alive_);
  TellEnd(*job->handler, std::move(result));
  owner.OnEnded(job);
}

// Ends the job after an exception. It allocates nothing.
void HttpConnection::Break() noexcept {
  if (!job_) return;
  if (ending_) return EndIfDrained();
  HttpResult broken = BrokenByException();
  Fail(broken.error, std::move(broken.detail));
}

void HttpConnection::Cancel() {
  Fail(HttpErrorKind::kCancelled, "cancelled");
}

void HttpConnection::Close() {
  CloseSocket();
}

void HttpConnection::CloseSocket() {
  Error ignored;
  socket().close(ignored);
}

bool HttpConnection::LooksAlive() {
  char byte;
  const ssize_t got = ::recv(socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  // TLS sends session tickets and the like unasked; plain HTTP nothing.
  if (got > 0) return tls_stream_.has_value();
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

// ---- Deadlines

void HttpConnection::SetDeadline(Stage stage, std::chrono::milliseconds allowance) {
  stage_ = stage;
  deadline_ = std::chrono::steady_clock::now() + allowance;
  if (deadline_ < timer_due_) ArmTimer();
}

void HttpConnection::ArmTimer() {
  timer_.expires_at(deadline_);
  timer_due_ = SteadyTime::max();
  timer_.async_wait([weak = weak_from_this()](const Error& error) {
    if (error) return;  // armed again
    const std::shared_ptr<HttpConnection> self = weak.lock();
    if (!self) return;
    self->Guard([&] { self->OnTimer(); });
  });
  timer_due_ = deadline_;
}

void HttpConnection::OnTimer() {
  timer_due_ = SteadyTime::max();
  if (deadline_ == SteadyTime::max()) return;
  if (std::chrono::steady_clock::now() < deadline_) return ArmTimer();
  OnDeadline();
}

void HttpConnection::OnDeadline() {
  const HttpClientOptions& options = owner_.options();
  const auto fail = [this](HttpErrorKind kind, std::string_view what, std::chrono::milliseconds limit) {
    Fail(kind, fmt::format("{} within {} ms", what, limit.count()));
  };
  switch (stage_) {
    case Stage::kResolve:
      return fail(HttpErrorKind::kConnect, "the host name was not resolved", options.connect_timeout);
    case Stage::kConnect:
      return fail(HttpErrorKind::kConnect, "no connection", options.connect_timeout);
    case Stage::kTunnel:
      return fail(HttpErrorKind::kConnect, "no answer of the proxy to CONNECT", options.connect_timeout);
    case Stage::kHandshake:
      return fail(HttpErrorKind::kConnect, "no end of the TLS handshake", options.connect_timeout);
    case Stage::kSend:
      return fail(HttpErrorKind::kTimeout, "the server took no byte of the request", options.stall_timeout);
    case Stage::kFirstByte:
      return fail(HttpErrorKind::kTimeout, "no response", options.first_byte_timeout + job_->request.extra_timeout);
    case Stage::kBody:
      return fail(HttpErrorKind::kTimeout, "no byte of the response's body",
                  options.stall_timeout + job_->request.extra_timeout);
    case Stage::kIdle:
      return;
  }
}

}  // namespace millrace
