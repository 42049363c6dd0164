#include "net/server_connection.h"

#include <linux/sockios.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "net/reply_head.h"

namespace millrace {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::error_code;

constexpr size_t kMaxHead = size_t{64} << 10;
constexpr size_t kReadStep = size_t{16} << 10;       // room made for the rest of a head
constexpr size_t kTurn = size_t{2} << 20;            // bytes moved before other connections get their turn
constexpr size_t kEncryptStep = size_t{64} << 10;    // handed to OpenSSL at once
constexpr uint64_t kDiscardLimit = uint64_t{1} << 20;  // of a refused body; beyond, closing is cheaper
constexpr int kMaxParts = 64;                        // of one sendmsg
constexpr auto kDrainTime = std::chrono::seconds(2);
constexpr auto kResetPatience = std::chrono::seconds(5);

/// The bytes of a step; null for steps that are no bytes.
struct StepBytes {
  uint64_t size = 0;
  bool is_bytes = false;
};
StepBytes BytesOf(const ReplyStep& step) {
  if (const auto* text = std::get_if<SendText>(&step)) return {text->text.size(), true};
  if (const auto* bytes = std::get_if<SendBytes>(&step)) return {bytes->bytes.size(), true};
  if (const auto* file = std::get_if<SendFile>(&step)) return {file->range.length, true};
  return {};
}

/// Memory of a text or bytes step; empty for files.
std::string_view MemoryOf(const ReplyStep& step) {
  if (const auto* text = std::get_if<SendText>(&step)) return text->text;
  if (const auto* bytes = std::get_if<SendBytes>(&step)) return AsText(bytes->bytes);
  return {};
}

/// Bytes sent at once under a pace: 2 ms worth, or less often 1 KiB where that is slower than that.
uint64_t PaceSlice(uint64_t rate) {
  return std::clamp<uint64_t>(rate / 500, std::clamp<uint64_t>(rate / 20, 1, 1024), uint64_t{1} << 20);
}

std::string Copy(boost::beast::string_view text) { return std::string(text.data(), text.size()); }

}  // namespace

uint64_t StepSize(const ReplyStep& step) { return BytesOf(step).size; }

uint64_t BodySize(const std::vector<ReplyStep>& body) {
  uint64_t size = 0;
  for (const ReplyStep& step : body) size += StepSize(step);
  return size;
}

struct ServerConnection::Socket {
  Socket(asio::io_context& context, int fd) : descriptor(context, fd) {}
  int fd() { return descriptor.native_handle(); }
  asio::posix::stream_descriptor descriptor;
};

/// Beast's parser, told to hand heads and bodies on as they come.
class ServerConnection::Parser final : public http::basic_parser<true> {
 public:
  explicit Parser(ServerConnection& connection) : connection_(connection) {
    header_limit(kMaxHead);
    body_limit(boost::none);  // the handler's business
  }

  HttpRequestHead head;
  bool begun = false;  // the handler knows of the request
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
    // Beast limits what lies unparsed in the buffer; the sum over slowly arriving lines is limited here.
    size_ += name.size() + value.size() + 4;
    if (size_ > kMaxHead) {
      error = http::error::header_limit;
      return;
    }
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
  size_t size_ = 0;
};

ServerConnection::ServerConnection(ServerLoop& home, int fd)
    : home_(home),
      socket_(std::make_unique<Socket>(home.loop.context(), fd)),
      timer_(home.loop),
      state_(home.tls == nullptr ? State::kReceive : State::kHandshake),
      last_move_(Clock::now()) {
  home_.live->Add();
  if (home.tls != nullptr) {
    ssl_ = SSL_new(home.tls);
    if (ssl_ == nullptr || SSL_set_fd(ssl_, fd) != 1) state_ = State::kDrain;  // out of memory: hang up
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
  home_.connections.erase(self);
}

void ServerConnection::CloseIfIdle(Clock::time_point now) {
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

void ServerConnection::Run() {
  if (running_) return;  // it looks again before it waits
  if (state_ == State::kClosed) return;
  const std::shared_ptr<ServerConnection> self = shared_from_this();
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
    case Next::kWaitReadable: Await(true); break;
    case Next::kWaitWritable: Await(false); break;
    case Next::kYield: home_.loop.Post([self] { self->Run(); }); break;
    case Next::kAgain:
    case Next::kWaitTimer:
    case Next::kWaitReply: break;
  }
}

void ServerConnection::Await(bool readable) {
  bool& armed = readable ? reading_armed_ : writing_armed_;
  if (armed) return;
  armed = true;
  socket_->descriptor.async_wait(
      readable ? asio::posix::stream_descriptor::wait_read : asio::posix::stream_descriptor::wait_write,
      [self = shared_from_this(), readable](const error_code&) {
        (readable ? self->reading_armed_ : self->writing_armed_) = false;
        self->Run();  // a socket in error shows it at the next call
      });
}

ServerConnection::Next ServerConnection::Step() {
  switch (state_) {
    case State::kHandshake: return Handshake();
    case State::kReceive: return Receive();
    case State::kRespond: return Respond();
    case State::kReset: return AwaitReset();
    case State::kDrain: return Drain();
    case State::kClosed: break;
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
  const Moved moved = TlsResult(result);
  if (moved.wait) return *moved.wait;
  Close();
  return Next::kAgain;
}

ServerConnection::Moved ServerConnection::TlsResult(int result) {
  if (result > 0) return {result, std::nullopt};
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ: return {0, Next::kWaitReadable};
    case SSL_ERROR_WANT_WRITE: return {0, Next::kWaitWritable};
    case SSL_ERROR_ZERO_RETURN: return {0, std::nullopt};
    default: return {-1, std::nullopt};
  }
}

ServerConnection::Moved ServerConnection::ReadSocket(MutableByteSpan into) {
  Moved moved;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    moved = TlsResult(SSL_read(ssl_, into.data(), static_cast<int>(into.size())));
  } else {
    do {
      moved.bytes = recv(socket_->fd(), into.data(), into.size(), 0);
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
      input_.remove_prefix(parser_->put(asio::const_buffer(input_.data(), input_.size()), error));
    }
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
  is_head_ = parser.head.method == "HEAD";
  close_after_ = !parser.keep_alive();
  awaits_continue_ = parser.expects_continue && parser.http11 && !parser.is_done();
  HttpRequestFacts facts;
  facts.expects_continue = awaits_continue_;
  if (!parser.chunked()) facts.content_length = parser.content_length().value_or(0);
  exchange_ = home_.handler.OnRequest(std::move(parser.head), facts, HttpResponder(shared_from_this()));
  if (awaits_continue_ && !reply_ && !abandoned_) SendContinue();
}

void ServerConnection::SendContinue() {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  awaits_continue_ = false;
  // The client waits, so that nothing else is under way and these few bytes fit into the socket's buffer.
  ERR_clear_error();
  const ssize_t sent = ssl_ != nullptr ? SSL_write(ssl_, kContinue.data(), static_cast<int>(kContinue.size()))
                                       : send(socket_->fd(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(kContinue.size())) abandoned_ = true;
}

void ServerConnection::DecideEarlyReply() {
  if (!parser_ || parser_->is_done()) return;
  const auto left = parser_->content_length_remaining();
  discarding_ = left && *left <= kDiscardLimit && !awaits_continue_;
  if (!discarding_) close_after_ = true;
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

ServerConnection::Next ServerConnection::Respond() {
  if (!reply_) return Next::kWaitReply;
  if (Clock::now() < reply_->not_before) return WaitUntil(reply_->not_before);
  if (!replying_) BeginReply();
  return SendSome();
}

void ServerConnection::BeginReply() {
  replying_ = true;
  head_sent_ = step_ = step_sent_ = 0;
  rate_ = pace_credit_ = 0;
  pausing_ = false;
  HttpReply& reply = *reply_;
  const uint64_t size = BodySize(reply.body);
  const uint64_t declared = reply.content_length.value_or(size);
  if (is_head_ || reply.status == 204 || reply.status == 304) {
    std::erase_if(reply.body, [](const ReplyStep& step) { return BytesOf(step).is_bytes; });
    bytes_left_ = 0;
  } else {
    bytes_left_ = size;
    if (size != declared) close_after_ = true;  // else the peer would take the next head for this body
  }
  head_.clear();
  if (!reply.send_head) {
    close_after_ = true;
    return;
  }
  AppendReplyHead(reply, declared, Date(), &head_);
  if (close_after_) {
    head_ += "Connection: close\r\n";
  } else if (!parser_->http11) {
    head_ += "Connection: keep-alive\r\n";
  }
  head_ += "\r\n";
}

const std::string& ServerConnection::Date() {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  if (now != home_.date_second || home_.date.empty()) {
    home_.date_second = now;
    home_.date = HttpDate(now.count());
  }
  return home_.date;
}

ServerConnection::Next ServerConnection::SendSome() {
  const bool head_done = head_sent_ == head_.size();
  if (head_done) {
    while (step_ < reply_->body.size()) {
      const ReplyStep& step = reply_->body[step_];
      const StepBytes bytes = BytesOf(step);
      if (bytes.is_bytes && step_sent_ < bytes.size) break;
      if (!bytes.is_bytes) {
        if (const std::optional<Next> next = CarryOut(step)) return *next;
      }
      ++step_;
      step_sent_ = 0;
    }
    if (step_ == reply_->body.size()) return FinishReply();
  }
  if (turn_bytes_ >= kTurn) return Next::kYield;
  const size_t allowance = Allowance();
  if (head_done && allowance == 0) return WaitUntil(pace_next_);
  if (ssl_ != nullptr) return SendEncrypted(allowance);
  const auto* file = head_done ? std::get_if<SendFile>(&reply_->body[step_]) : nullptr;
  return file != nullptr ? SendFilePart(*file, allowance) : SendGathered(allowance);
}

/// Does a step that is no bytes; nullopt when it is done and the next may follow.
std::optional<ServerConnection::Next> ServerConnection::CarryOut(const ReplyStep& step) {
  if (const auto* rate = std::get_if<SendRate>(&step)) {
    rate_ = rate->bytes_per_second;
    pace_next_ = Clock::now();
    pace_credit_ = 0;
    PlanSlice();
    return std::nullopt;
  }
  if (const auto* pause = std::get_if<SendPause>(&step)) {
    if (!pausing_) {
      pausing_ = true;
      pause_end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause->duration);
    }
    if (Clock::now() < pause_end_) return WaitUntil(pause_end_);
    pausing_ = false;
    return std::nullopt;
  }
  if (std::get<EndConnection>(step).reset) {
    state_ = State::kReset;
    reset_deadline_ = Clock::now() + kResetPatience;
  } else {
    HangUp();
  }
  return Next::kAgain;
}

/// Under a pace, a slice may leave once the time that it takes at that pace has passed.
void ServerConnection::PlanSlice() {
  if (rate_ == 0) return;
  pace_slice_ = static_cast<size_t>(std::min(PaceSlice(rate_), bytes_left_));
  // A peer that was slow to read gains no credit beyond a few slices.
  const Clock::time_point from = std::max(pace_next_, Clock::now() - std::chrono::milliseconds(20));
  pace_next_ = from + std::chrono::nanoseconds(pace_slice_ * 1'000'000'000ull / rate_);
}

size_t ServerConnection::Allowance() {
  if (rate_ == 0) return kTurn;
  if (pace_credit_ == 0 && Clock::now() >= pace_next_) pace_credit_ = pace_slice_;
  return pace_credit_;
}

void ServerConnection::Advance(size_t bytes) {
  last_move_ = Clock::now();
  turn_bytes_ += bytes;
  const size_t of_head = std::min(bytes, head_.size() - head_sent_);
  head_sent_ += of_head;
  bytes -= of_head;
  if (bytes == 0) return;
  bytes_left_ -= bytes;
  if (rate_ > 0) {
    pace_credit_ -= bytes;
    if (pace_credit_ == 0) PlanSlice();
  }
  while (bytes > 0) {
    const uint64_t left = BytesOf(reply_->body[step_]).size - step_sent_;
    if (bytes < left) {
      step_sent_ += bytes;
      return;
    }
    bytes -= left;
    ++step_;
    step_sent_ = 0;
  }
}

ServerConnection::Next ServerConnection::AfterSend(ssize_t sent) {
  if (sent > 0) {
    Advance(static_cast<size_t>(sent));
    return Next::kAgain;
  }
  if (sent < 0 && errno == EINTR) return Next::kAgain;
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Next::kWaitWritable;
  Close();  // the peer is gone, or a file was truncated while it was sent
  return Next::kAgain;
}

ServerConnection::Next ServerConnection::SendGathered(size_t allowance) {
  iovec parts[kMaxParts];
  int count = 0;
  const auto add = [&](std::string_view text) { parts[count++] = {const_cast<char*>(text.data()), text.size()}; };
  if (head_sent_ < head_.size()) add(std::string_view(head_).substr(head_sent_));
  bool file_follows = false;
  size_t skip = step_sent_;
  for (size_t i = step_; i < reply_->body.size() && count < kMaxParts && allowance > 0; ++i, skip = 0) {
    const ReplyStep& step = reply_->body[i];
    if (!BytesOf(step).is_bytes) break;
    if (std::holds_alternative<SendFile>(step)) {
      file_follows = BytesOf(step).size > 0;
      break;
    }
    const std::string_view text = MemoryOf(step).substr(skip, allowance);
    if (!text.empty()) add(text);
    allowance -= text.size();
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<size_t>(count);
  // With a file right behind it, a head waits for it: one packet instead of two.
  return AfterSend(sendmsg(socket_->fd(), &message, MSG_NOSIGNAL | (file_follows ? MSG_MORE : 0)));
}

ServerConnection::Next ServerConnection::SendFilePart(const SendFile& file, size_t allowance) {
  off_t offset = static_cast<off_t>(file.range.offset + step_sent_);
  const size_t size = static_cast<size_t>(std::min<uint64_t>(file.range.length - step_sent_, allowance));
  return AfterSend(sendfile(socket_->fd(), file.file->fd(), &offset, size));
}

ServerConnection::Next ServerConnection::SendEncrypted(size_t allowance) {
  // A write that would block must be repeated with the same bytes: nothing moves on before it succeeds, so they are the same.
  const MutableByteSpan buffer = home_.scratch.span().first(kEncryptStep);
  size_t filled = std::min(buffer.size(), head_.size() - head_sent_);
  std::memcpy(buffer.data(), head_.data() + head_sent_, filled);
  uint64_t skip = step_sent_;
  for (size_t i = step_; i < reply_->body.size() && filled < buffer.size() && allowance > 0; ++i, skip = 0) {
    const ReplyStep& step = reply_->body[i];
    if (!BytesOf(step).is_bytes) break;
    const size_t n = static_cast<size_t>(
        std::min<uint64_t>({BytesOf(step).size - skip, allowance, buffer.size() - filled}));
    if (const auto* file = std::get_if<SendFile>(&step)) {
      const ssize_t got =
          pread(file->file->fd(), buffer.data() + filled, n, static_cast<off_t>(file->range.offset + skip));
      if (got != static_cast<ssize_t>(n)) {
        Close();  // the file was truncated while it was sent
        return Next::kAgain;
      }
    } else {
      std::memcpy(buffer.data() + filled, MemoryOf(step).data() + skip, n);
    }
    filled += n;
    allowance -= n;
  }
  ERR_clear_error();
  const Moved moved = TlsResult(SSL_write(ssl_, buffer.data(), static_cast<int>(filled)));
  if (moved.wait) return *moved.wait;
  if (moved.bytes <= 0) {
    Close();
  } else {
    Advance(static_cast<size_t>(moved.bytes));
  }
  return Next::kAgain;
}

ServerConnection::Next ServerConnection::FinishReply() {
  if (close_after_) {
    if (ssl_ != nullptr) {
      ERR_clear_error();
      SSL_shutdown(ssl_);
    }
    HangUp();
    return Next::kAgain;
  }
  replying_ = discarding_ = is_head_ = false;
  exchange_.reset();
  reply_.reset();
  parser_.reset();
  state_ = State::kReceive;
  return Next::kAgain;
}

/// FIN, and then wait a little for the peer's: closing with unread input would turn into a reset and could swallow the answer.
void ServerConnection::HangUp() {
  shutdown(socket_->fd(), SHUT_WR);
  input_ = {};
  state_ = State::kDrain;
  reset_deadline_ = Clock::now() + kDrainTime;
}

ServerConnection::Next ServerConnection::Drain() {
  for (;;) {
    if (turn_bytes_ >= kTurn) return Next::kYield;
    const ssize_t got = recv(socket_->fd(), home_.scratch.data(), home_.scratch.size(), 0);
    if (got > 0) {
      turn_bytes_ += static_cast<size_t>(got);
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Next::kWaitReadable;
    Close();
    return Next::kAgain;
  }
}

/// A reset throws away what the peer has not yet received, so it waits until that is nothing.
ServerConnection::Next ServerConnection::AwaitReset() {
  int unacknowledged = 0;
  const Clock::time_point now = Clock::now();
  if (ioctl(socket_->fd(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0 && now < reset_deadline_) {
    return WaitUntil(now + std::chrono::microseconds(200));
  }
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  Close();
  return Next::kAgain;
}

ServerConnection::Next ServerConnection::WaitUntil(Clock::time_point when) {
  timer_.Start(when - Clock::now(), [self = shared_from_this()] { self->Run(); });
  return Next::kWaitTimer;
}

struct LiveConnections::Impl {
  std::mutex mutex;
  std::condition_variable none;
  size_t count = 0;
};

LiveConnections::LiveConnections() : impl_(std::make_unique<Impl>()) {}
LiveConnections::~LiveConnections() = default;

void LiveConnections::Add() {
  std::lock_guard lock(impl_->mutex);
  ++impl_->count;
}

void LiveConnections::Remove() {
  std::lock_guard lock(impl_->mutex);
  if (--impl_->count == 0) impl_->none.notify_all();
}

void LiveConnections::WaitForNone() {
  std::unique_lock lock(impl_->mutex);
  impl_->none.wait(lock, [this] { return impl_->count == 0; });
}

HttpResponder::HttpResponder(std::shared_ptr<ServerConnection> connection) : connection_(std::move(connection)) {}
HttpResponder::HttpResponder(HttpResponder&&) noexcept = default;

HttpResponder::~HttpResponder() {
  if (!connection_) return;
  EventLoop& loop = connection_->loop();
  if (loop.InLoop()) {
    connection_->OnAbandoned();
  } else {
    loop.Post([connection = std::move(connection_)] { connection->OnAbandoned(); });
  }
}

void HttpResponder::Send(HttpReply reply) {
  // Moved out first, and always ended on the loop: the connection may be destroyed with it.
  std::shared_ptr<ServerConnection> connection = std::move(connection_);
  EventLoop& loop = connection->loop();
  if (loop.InLoop()) {
    connection->OnReply(std::move(reply));
  } else {
    loop.Post([connection = std::move(connection), reply = std::move(reply)]() mutable {
      connection->OnReply(std::move(reply));
    });
  }
}

}  // namespace millrace
