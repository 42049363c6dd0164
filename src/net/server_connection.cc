#include "net/server_connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <exception>
#include <utility>

#include "base/log_exception.h"

namespace millrace {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::error_code;

constexpr size_t kMaxHead = size_t{64} << 10;
constexpr std::string_view kSpeaksTls =
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 41\r\n\r\n"
    "this server speaks TLS; ask it by HTTPS\r\n";
constexpr size_t kReadStep = size_t{16} << 10;         // room made for the rest of a head
constexpr uint64_t kDiscardLimit = uint64_t{1} << 20;  // of a refused body; beyond, closing is cheaper

std::string Copy(boost::beast::string_view text) {
  return std::string(text.data(), text.size());
}

}  // namespace

struct ServerConnection::Socket {
  Socket(asio::io_context& context, UniqueFd fd) : descriptor(context, fd.get()) { (void)fd.Release(); }
  asio::posix::stream_descriptor descriptor;
};

/// Adapts Beast's parser, which hands heads and bodies on as they come.
class ServerConnection::Parser final : public http::basic_parser<true> {
 public:
  explicit Parser(ServerConnection& connection) : connection_(connection) {
    header_limit(kMaxHead);
    body_limit(boost::none);  // the handler's business
  }

  HttpRequestHead head;
  bool begun = false;    // the handler knows of the request
  size_t head_size = 0;  // of what was parsed before that
  bool expects_continue = false;
  bool http11 = true;

 private:
  void on_request_impl(http::verb, boost::beast::string_view method, boost::beast::string_view target, int version,
                       error_code&) override {
    head.method = Copy(method);
    head.target = Copy(target);
    http11 = version >= 11;
  }
  void on_field_impl(http::field field, boost::beast::string_view name, boost::beast::string_view value,
                     error_code& error) override {
    if (is_header_done()) return;  // a trailer: no one's business here
    if (field == http::field::transfer_encoding && !boost::beast::iequals(value, "chunked")) {
      error = http::error::bad_transfer_encoding;
      return;
    }
    if (field == http::field::expect && boost::beast::iequals(value, "100-continue")) expects_continue = true;
    head.headers.Add(Copy(name), Copy(value));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(boost::beast::string_view body, error_code&) override {
    Deliver(body);
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, boost::beast::string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, boost::beast::string_view body, error_code&) override {
    Deliver(body);
    return body.size();
  }
  void on_finish_impl(error_code&) override {}
  void on_response_impl(int, boost::beast::string_view, int, error_code&) override {}

  void Deliver(boost::beast::string_view body) {
    if (!connection_.reply_ && connection_.exchange_) {
      connection_.exchange_->OnBody(AsBytes({body.data(), body.size()}));
    }
  }

  ServerConnection& connection_;
};

ServerConnection::ServerConnection(ServerLoop& home, UniqueFd fd, std::string peer)
    : home_(home),
      peer_(std::move(peer)),
      fd_(fd.get()),
      socket_(std::make_unique<Socket>(home.loop.context(), std::move(fd))),
      timer_(home.loop),
      state_(home.tls == nullptr ? State::kReceive : State::kHandshake),
      last_move_(Clock::now()),
      waits_since_(last_move_),
      head_since_(last_move_) {
  home_.live->Add();
  if (home.tls != nullptr) {
    ssl_ = SSL_new(home.tls);
    if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_) != 1) state_ = State::kDrain;  // out of memory: hang up
  }
}

ServerConnection::~ServerConnection() {
  SSL_free(ssl_);
  home_.live->Remove();
}

void ServerConnection::Close() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<ServerConnection> self = shared_from_this();
  state_ = State::kClosed;
  timer_.Cancel();
  error_code ignored;
  socket_->descriptor.close(ignored);
  input_ = {};
  reply_.reset();
  exchange_.reset();
  if (home_.connections.erase(self) == 0) return;
  const auto count = home_.by_address.find(peer_);
  if (count != home_.by_address.end() && --count->second == 0) home_.by_address.erase(count);
}

void ServerConnection::MakeRoom() {
  constexpr size_t kMaxIgnored = 1024;
  if (has_asked_ || !waits_for_request() || home_.close_delay.count() == 0) return Close();
  if (home_.ignored.size() >= kMaxIgnored) home_.ignored.pop_front();
  home_.ignored.push_back({UniqueFd(-1), Clock::now() + home_.close_delay});
  home_.ignored.back().fd = UniqueFd(socket_->descriptor.release());
  Close();
}

bool ServerConnection::waits_for_request() const {
  return state_ == State::kHandshake || (state_ == State::kReceive && exchange_ == nullptr && !reply_);
}

bool ServerConnection::IsStuck(Clock::time_point now) const {
  constexpr std::chrono::seconds kStuckAfter{1};
  return state_ == State::kRespond && blocked_ && now - last_move_ > kStuckAfter;
}

bool ServerConnection::GoesBefore(const ServerConnection& other) const {
  if (waits_for_request() != other.waits_for_request()) return waits_for_request();
  return has_asked_ != other.has_asked_ ? !has_asked_ : waits_since_ < other.waits_since_;
}

void ServerConnection::CloseIfIdle(Clock::time_point now) {
  if (lost_) return Close();
  if (head_since_ && now - *head_since_ > home_.head_timeout) {
    // A process that was stopped reads between two looks all that came meanwhile.
    if (std::exchange(overdue_, true)) return Close();
  }
  if (state_ == State::kDrain ? now > reset_deadline_ : blocked_ && now - last_move_ > home_.idle_timeout) Close();
}

void ServerConnection::OnReply(HttpReply reply) {
  if (state_ == State::kClosed || reply_) return;
  reply_ = std::move(reply);
  if (state_ == State::kReceive) DecideEarlyReply();
  Run();
}

void ServerConnection::OnAbandoned() {
  if (state_ == State::kClosed || reply_) return;
  abandoned_ = true;  // Run closes: the exchange that gave up may be on the stack
  Run();
}

void ServerConnection::Run() noexcept {
  if (running_) return;  // it looks again before it waits
  if (state_ == State::kClosed) return;
  const std::shared_ptr<ServerConnection> self = shared_from_this();
  try {
    RunSteps();
  } catch (const std::exception& error) {
    running_ = false;
    LogException("net", error);
    Close();
  }
}

void ServerConnection::RunSteps() {
  running_ = true;
  turn_bytes_ = 0;
  Next next = Next::kAgain;
  while (next == Next::kAgain) {
    if (abandoned_) Close();
    if (state_ == State::kClosed) break;
    next = Step();
  }
  running_ = false;
  if (state_ == State::kClosed) return;
  SaveInput();
  blocked_ = next == Next::kWaitReadable || next == Next::kWaitWritable;
  switch (next) {
    case Next::kWaitReadable:
      Await(true);
      break;
    case Next::kWaitWritable:
      Await(false);
      break;
    case Next::kYield:
      home_.loop.Post([self = shared_from_this()] { self->Run(); });
      break;
    case Next::kAgain:
    case Next::kWaitTimer:
    case Next::kWaitReply:
      break;
  }
}

void ServerConnection::Await(bool readable) {
  bool& armed = readable ? reading_armed_ : writing_armed_;
  if (armed) return;
  socket_->descriptor.async_wait(
      readable ? asio::posix::stream_descriptor::wait_read : asio::posix::stream_descriptor::wait_write,
      [self = shared_from_this(), readable](const error_code&) {
        (readable ? self->reading_armed_ : self->writing_armed_) = false;
        self->Run();  // a socket in error shows it at the next call
      });
  armed = true;
}

ServerConnection::Next ServerConnection::Step() {
  switch (state_) {
    case State::kHandshake:
      return Handshake();
    case State::kReceive:
      return Receive();
    case State::kRespond:
      return Respond();
    case State::kReset:
      return AwaitReset();
    case State::kDrain:
      return Drain();
    case State::kClosed:
      break;
  }
  return Next::kAgain;
}

ServerConnection::Next ServerConnection::Handshake() {
  ERR_clear_error();
  const int result = SSL_accept(ssl_);
  if (result == 1) {
    state_ = State::kReceive;
    return Next::kAgain;
  }
  // OpenSSL sends no alert then, and the client would see nothing but a connection that breaks.
  const bool is_plain = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_HTTP_REQUEST;
  const Moved moved = TlsResult(result);
  if (moved.wait) return *moved.wait;
  if (is_plain) send(fd_, kSpeaksTls.data(), kSpeaksTls.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  Close();
  return Next::kAgain;
}

ServerConnection::Moved ServerConnection::TlsResult(int result) {
  if (result > 0) return {result, std::nullopt};
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return {0, Next::kWaitReadable};
    case SSL_ERROR_WANT_WRITE:
      return {0, Next::kWaitWritable};
    case SSL_ERROR_ZERO_RETURN:
      return {0, std::nullopt};
    default:
      return {-1, std::nullopt};
  }
}

ServerConnection::Moved ServerConnection::ReadSocket(MutableByteSpan into) {
  Moved moved;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    moved = TlsResult(SSL_read(ssl_, into.data(), static_cast<int>(into.size())));
  } else {
    do {
      moved.bytes = recv(fd_, into.data(), into.size(), 0);
    } while (moved.bytes < 0 && errno == EINTR);
    if (moved.bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) moved = {0, Next::kWaitReadable};
  }
  if (moved.bytes > 0) {
    turn_bytes_ += static_cast<size_t>(moved.bytes);
    last_move_ = Clock::now();
  }
  return moved;
}

/// Scratch belongs to whichever connection runs: what is left of the input moves to memory of its own.
void ServerConnection::SaveInput() {
  if (input_.empty()) {
    saved_.clear();
    if (saved_.capacity() > kMaxHead) saved_.shrink_to_fit();
  } else if (input_.data() >= saved_.data() && input_.data() < saved_.data() + saved_.size()) {
    saved_.erase(0, static_cast<size_t>(input_.data() - saved_.data()));
  } else {
    saved_.assign(input_);
  }
  input_ = saved_;
}

ServerConnection::Next ServerConnection::ReceiveMore() {
  if (turn_bytes_ >= kTurn) return Next::kYield;
  Moved moved;
  if (input_.empty()) {
    moved = ReadSocket(home_.scratch.span());
    if (moved.bytes > 0) input_ = AsText(home_.scratch.span().first(static_cast<size_t>(moved.bytes)));
  } else {
    SaveInput();
    const size_t old_size = saved_.size();
    saved_.resize(old_size + kReadStep);
    moved = ReadSocket({reinterpret_cast<std::byte*>(saved_.data()) + old_size, kReadStep});
    saved_.resize(old_size + static_cast<size_t>(std::max<ssize_t>(moved.bytes, 0)));
    input_ = saved_;
  }
  if (moved.wait) return *moved.wait;
  if (moved.bytes <= 0) Close();
  return Next::kAgain;
}

ServerConnection::Next ServerConnection::Receive() {
  while (state_ == State::kReceive && !abandoned_) {
    if (!parser_) parser_ = std::make_unique<Parser>(*this);
    if (reply_ && !discarding_) {  // answered before the body was read
      state_ = State::kRespond;
      return Next::kAgain;
    }
    error_code error = http::error::need_more;
    if (!input_.empty()) {
      if (!parser_->begun && !head_since_) head_since_ = Clock::now();
      const size_t parsed = parser_->put(asio::const_buffer(input_.data(), input_.size()), error);
      input_.remove_prefix(parsed);
      if (!parser_->begun) parser_->head_size += parsed;
    }
    // Beast limits what lies unparsed, not the sum of a head that arrives in pieces.
    const bool head_only = !parser_->begun && !parser_->is_header_done();
    if (parser_->head_size + (head_only ? input_.size() : 0) > kMaxHead) error = http::error::header_limit;
    if (error == http::error::need_more) {
      if (input_.size() > kMaxHead) return Refuse(431, "the request's head is too large");
      if (const Next next = ReceiveMore(); next != Next::kAgain) return next;
      continue;
    }
    if (error == http::error::header_limit) return Refuse(431, "the request's head is too large");
    if (error) return Refuse(400, "not a valid HTTP/1.1 request: " + error.message());
    if (!parser_->begun && parser_->is_header_done()) BeginExchange();
    if (parser_->is_done()) {
      if (!reply_ && !abandoned_) exchange_->OnBodyEnd();
      state_ = State::kRespond;
    }
  }
  return Next::kAgain;
}

void ServerConnection::BeginExchange() {
  Parser& parser = *parser_;
  parser.begun = true;
  head_since_.reset();
  overdue_ = false;
  is_head_ = parser.head.method == "HEAD";
  close_after_ = !parser.keep_alive();
  http11_ = parser.http11;
  awaits_continue_ = parser.expects_continue && parser.http11 && !parser.is_done();
  HttpRequestFacts facts;
  facts.expects_continue = awaits_continue_;
  facts.peer = peer_;
  if (!parser.chunked()) facts.content_length = parser.content_length().value_or(0);
  exchange_ = home_.handler.OnRequest(std::move(parser.head), facts, HttpResponder(shared_from_this()));
  if (awaits_continue_ && !reply_ && !abandoned_) SendContinue();
}

void ServerConnection::SendContinue() {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  awaits_continue_ = false;
  // The client waits, so that nothing else is in flight and these few bytes fit into the socket's buffer.
  ERR_clear_error();
  const ssize_t sent = ssl_ != nullptr ? SSL_write(ssl_, kContinue.data(), static_cast<int>(kContinue.size()))
                                       : send(fd_, kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(kContinue.size())) abandoned_ = true;
}

void ServerConnection::DecideEarlyReply() {
  if (!parser_ || parser_->is_done()) return;
  const auto left = parser_->content_length_remaining();
  discarding_ = left && *left <= kDiscardLimit && !awaits_continue_;
  if (!discarding_) close_after_ = true;
  if (discarding_) head_since_ = Clock::now();  // nobody waits for such a body
}

ServerConnection::Next ServerConnection::Refuse(int status, std::string_view why) {
  if (!reply_) {
    reply_.emplace();
    reply_->status = status;
    reply_->headers.Add("Content-Type", "text/plain");
    reply_->body.push_back(SendText{std::string(why) + "\n"});
  }
  discarding_ = false;
  close_after_ = true;
  input_ = {};
  state_ = State::kRespond;
  return Next::kAgain;
}

/// Makes the connection ready for the next request.
void ServerConnection::EndExchange() {
  discarding_ = is_head_ = false;
  http11_ = true;
  exchange_.reset();
  parser_.reset();
  waits_since_ = Clock::now();
  head_since_.reset();
  state_ = State::kReceive;
}

}  // namespace millrace
