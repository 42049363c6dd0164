// This file has the half of a connection that answers; server_connection.cc has the other.

#include <linux/sockios.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "net/reply_head.h"
#include "net/server_connection.h"

namespace millrace {

namespace {

constexpr size_t kEncryptStep = size_t{16} << 10;  // a record: OpenSSL takes no more at once
constexpr int kMaxParts = 64;                      // of one sendmsg
constexpr auto kDrainTime = std::chrono::seconds(2);
constexpr auto kResetTimeout = std::chrono::seconds(5);

/// Says how many bytes a step sends; `is_bytes` is false for pauses, rates and ends.
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

/// Returns the memory of a text or bytes step; it is empty for files.
std::string_view MemoryOf(const ReplyStep& step) {
  if (const auto* text = std::get_if<SendText>(&step)) return text->text;
  if (const auto* bytes = std::get_if<SendBytes>(&step)) return AsText(bytes->bytes);
  return {};
}

/// Returns the bytes sent at once under a pace: 2 ms worth, or less often 1 KiB if that is slower.
uint64_t PaceSlice(uint64_t rate) {
  return std::clamp<uint64_t>(rate / 500, std::clamp<uint64_t>(rate / 20, 1, 1024), uint64_t{1} << 20);
}

}  // namespace

uint64_t StepSize(const ReplyStep& step) {
  return BytesOf(step).size;
}

uint64_t BodySize(const std::vector<ReplyStep>& body) {
  uint64_t size = 0;
  for (const ReplyStep& step : body) size += StepSize(step);
  return size;
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
  } else if (!http11_) {
    head_ += "Connection: keep-alive\r\n";
  }
  head_ += "\r\n";
  if (reply.head_bytes) head_.resize(std::min<uint64_t>(head_.size(), *reply.head_bytes));
}

const std::string& ServerConnection::Date() {
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
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
    reset_deadline_ = Clock::now() + kResetTimeout;
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
  // With a file right after it, a head waits for it: one packet instead of two.
  return AfterSend(sendmsg(fd_, &message, MSG_NOSIGNAL | (file_follows ? MSG_MORE : 0)));
}

ServerConnection::Next ServerConnection::SendFilePart(const SendFile& file, size_t allowance) {
  off_t offset = static_cast<off_t>(file.range.offset + step_sent_);
  const size_t size = static_cast<size_t>(std::min<uint64_t>(file.range.length - step_sent_, allowance));
  return AfterSend(sendfile(fd_, file.file->get(), &offset, size));
}

ServerConnection::Next ServerConnection::SendEncrypted(size_t allowance) {
  // A write that would block must be repeated with the same bytes: nothing moves on before it succeeds, so they are the
  // same.
  const MutableByteSpan buffer = home_.scratch.span().first(kEncryptStep);
  size_t filled = std::min(buffer.size(), head_.size() - head_sent_);
  std::memcpy(buffer.data(), head_.data() + head_sent_, filled);
  uint64_t skip = step_sent_;
  for (size_t i = step_; i < reply_->body.size() && filled < buffer.size() && allowance > 0; ++i, skip = 0) {
    const ReplyStep& step = reply_->body[i];
    if (!BytesOf(step).is_bytes) break;
    const size_t n =
        static_cast<size_t>(std::min<uint64_t>({BytesOf(step).size - skip, allowance, buffer.size() - filled}));
    if (const auto* file = std::get_if<SendFile>(&step)) {
      const ssize_t got =
          pread(file->file->get(), buffer.data() + filled, n, static_cast<off_t>(file->range.offset + skip));
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
  replying_ = false;
  has_asked_ = has_asked_ || reply_->status < 400;
  reply_.reset();
  EndExchange();
  return Next::kAgain;
}

/// FIN, and then wait a little for the peer's: closing with unread input would turn into a reset and could swallow the
/// answer.
void ServerConnection::HangUp() {
  shutdown(fd_, SHUT_WR);
  input_ = {};
  state_ = State::kDrain;
  reset_deadline_ = Clock::now() + kDrainTime;
}

ServerConnection::Next ServerConnection::Drain() {
  for (;;) {
    if (turn_bytes_ >= kTurn) return Next::kYield;
    const ssize_t got = recv(fd_, home_.scratch.data(), home_.scratch.size(), 0);
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
  if (ioctl(fd_, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0 && now < reset_deadline_) {
    return WaitUntil(now + std::chrono::microseconds(200));
  }
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  Close();
  return Next::kAgain;
}

ServerConnection::Next ServerConnection::WaitUntil(Clock::time_point when) {
  timer_.Start(when - Clock::now(), [self = shared_from_this()] { self->Run(); });
  return Next::kWaitTimer;
}

}  // namespace millrace
