#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>
#include <string>

#include "base/life_sign.h"
#include "net/http_connection.h"

// This file receives the body of a response: its bytes go to their sink out of the connection's buffer, or straight
// from the socket.

namespace millrace {

namespace asio = boost::asio;

namespace {

// So many bytes are read at a time if they are checked as they come: they are still in the second-level cache of a core
// then.
constexpr size_t kWatchedReadBytes = 256 * 1024;
constexpr size_t kTurnBytes = 1024 * 1024;  // of them, before other connections get their turn

}  // namespace

// ---- Places of the sink

MutableByteSpan HttpConnection::PlaceAt(size_t place) const {
  return place == 0 ? sink_.buffer : sink_.rest[place - 1];
}

// Empty once all places are full.
MutableByteSpan HttpConnection::SinkSpace() const {
  return PlaceAt(place_).subspan(place_used_);
}

void HttpConnection::FillSink(size_t bytes) {
  result_.body_bytes += bytes;
  place_used_ += bytes;
  while (place_ < sink_.rest.size() && place_used_ >= PlaceAt(place_).size()) {
    place_used_ -= PlaceAt(place_).size();
    ++place_;
  }
}

// Returns the places for at most so many bytes. There is space for one at least.
HttpConnection::SinkParts HttpConnection::PartsOfSink(uint64_t most) const {
  SinkParts parts;
  MutableByteSpan space = SinkSpace();
  for (size_t place = place_;;) {
    space = space.first(std::min<uint64_t>(space.size(), most));
    parts.push_back(asio::buffer(space.data(), space.size()));
    most -= space.size();
    if (most == 0 || parts.size() == kMaxSinkParts || place == sink_.rest.size()) return parts;
    space = PlaceAt(++place);
  }
}

// ---- Out of the buffer

/// Uses what is in the buffer, then reads on.
void HttpConnection::UseBuffered() {
  if (framing_ == HttpBodyFraming::kChunked) {
    if (!UseChunked()) return;
  } else if (framing_ != HttpBodyFraming::kNone) {
    size_t take = end_ - begin_;
    if (framing_ == HttpBodyFraming::kLength) {
      take = std::min<uint64_t>(take, body_left_);
      body_left_ -= take;
    }
    const std::string_view data(buffer_.data() + begin_, take);
    begin_ += take;
    if (!Deliver(data)) return;
  }
  ContinueBody();
}

/// Returns false when the job has ended.
bool HttpConnection::UseChunked() {
  while (begin_ < end_ && !chunks_.done()) {
    const absl::StatusOr<HttpChunkDecoder::Piece> piece = chunks_.Next({buffer_.data() + begin_, end_ - begin_});
    if (!piece.ok()) {
      Fail(HttpErrorKind::kMalformed, std::string(piece.status().message()));
      return false;
    }
    begin_ += piece->consumed;
    if (!Deliver(piece->data)) return false;
  }
  return true;
}

/// Takes bytes of the body from the buffer to their sink. False when the job has ended.
bool HttpConnection::Deliver(std::string_view data) {
  job_->received = result_.wire_bytes += data.size();
  if (sink_.kind == HttpBodySink::Kind::kText) {
    const size_t room = sink_.text_limit - result_.text.size();
    result_.text.append(data.substr(0, room));
    if (data.size() <= room) return true;
    Fail(HttpErrorKind::kTooLarge, fmt::format("the response's body exceeds {} bytes", sink_.text_limit));
    return false;
  }
  const size_t skipped = std::min<uint64_t>(skip_left_, data.size());
  skip_left_ -= skipped;
  data.remove_prefix(skipped);
  const uint64_t before = result_.body_bytes;
  while (!data.empty()) {
    const MutableByteSpan space = SinkSpace();
    const size_t take = std::min(space.size(), data.size());
    if (take == 0) break;
    std::memcpy(space.data(), data.data(), take);
    data.remove_prefix(take);
    FillSink(take);
  }
  if (job_->request.moves_objects) MovedBytes(result_.body_bytes - before);
  if (result_.body_bytes > before && sink_.came) sink_.came(result_.body_bytes);
  if (data.empty()) return true;
  result_.more = true;
  Complete();
  return false;
}

// ---- From the socket

void HttpConnection::ReadIntoSink(uint64_t most) {
  const SinkParts parts = PartsOfSink(most);
  auto done = [pending = Pending(shared_from_this())](const Error& error, size_t bytes) mutable {
    pending.End([&](HttpConnection& self) { self.OnSinkRead(error, bytes); });
  };
  // TLS decrypts record by record anyway.
  if (tls_stream_) {
    tls_stream_->async_read_some(parts.front(), std::move(done));
  } else if (parts.size() == 1) {
    socket_.async_read_some(parts.front(), std::move(done));
  } else {
    socket_.async_read_some(parts, std::move(done));
  }
}

void HttpConnection::OnSinkRead(const Error& error, size_t bytes) {
  if (!OnReadDone(error)) return;
  OnSinkBytes(bytes);
  ContinueBody();
}

void HttpConnection::OnSinkBytes(size_t bytes) {
  FillSink(bytes);
  if (job_->request.moves_objects) MovedBytes(bytes);
  job_->received = result_.wire_bytes += bytes;
  if (sink_.came) sink_.came(result_.body_bytes);
  if (framing_ == HttpBodyFraming::kLength) body_left_ -= bytes;
  SetDeadline(Stage::kBody, owner_.options().stall_timeout + job_->request.extra_timeout);
}

HttpConnection::Goes HttpConnection::WhereBodyGoes() const {
  if (framing_ == HttpBodyFraming::kNone) return Goes::kNowhere;
  if (framing_ == HttpBodyFraming::kChunked) return chunks_.done() ? Goes::kNowhere : Goes::kToBuffer;
  if (framing_ == HttpBodyFraming::kLength && body_left_ == 0) return Goes::kNowhere;
  if (sink_.kind == HttpBodySink::Kind::kText || skip_left_ > 0) return Goes::kToBuffer;
  if (!SinkSpace().empty()) return Goes::kToSink;
  // Beyond a full buffer only the end of the stream is expected; a byte too many ends up in our own buffer.
  return framing_ == HttpBodyFraming::kUntilClose ? Goes::kToBuffer : Goes::kNowhere;
}

void HttpConnection::ContinueBody() {
  size_t turn = 0;
  for (;;) {
    const Goes goes = WhereBodyGoes();
    if (goes == Goes::kNowhere) {
      result_.more = framing_ == HttpBodyFraming::kLength && body_left_ > 0;
      return Complete();
    }
    if (goes == Goes::kToBuffer) return ReadIntoBuffer();
    const uint64_t most = framing_ == HttpBodyFraming::kLength ? body_left_ : UINT64_MAX;
    if (!sink_.came || !reads_now_) return ReadIntoSink(most);
    if (turn >= kTurnBytes) return YieldTurn();
    // An operation that has ended waits for its report behind those of other connections, and their bytes have pushed
    // its own out of the caches by then. So its bytes are read, and checked, right here.
    Error error;
    const size_t bytes = socket_.read_some(PartsOfSink(std::min<uint64_t>(most, kWatchedReadBytes)), error);
    if (error == asio::error::would_block) return ReadIntoSink(std::min<uint64_t>(most, kWatchedReadBytes));
    if (error) return OnStreamEnd(error);
    turn += bytes;
    OnSinkBytes(bytes);
  }
}

void HttpConnection::YieldTurn() {
  asio::post(context_, [pending = Pending(shared_from_this())]() mutable {
    pending.End([](HttpConnection& self) { self.ContinueBody(); });
  });
}

}  // namespace millrace
