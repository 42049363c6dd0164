#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/buffer.h"
#include "base/unique_fd.h"
#include "net/http_server.h"

// This is private to src/net: the parts of HttpServer.

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

namespace millrace {

class LiveConnections;

/// This is the socket of a connection that made room. Nothing reads it, and it is closed at `end`.
struct IgnoredSocket {
  UniqueFd fd;
  std::chrono::steady_clock::time_point end;
};

/// Holds what the connections of one loop share. Used on that loop's thread only.
struct ServerLoop {
  EventLoop& loop;
  HttpHandler& handler;
  SSL_CTX* tls;  // null: plain
  std::chrono::milliseconds idle_timeout;
  std::chrono::milliseconds head_timeout;
  size_t max_connections;  // of this loop
  size_t max_per_address;
  std::chrono::milliseconds close_delay;
  std::shared_ptr<LiveConnections> live;
  Buffer scratch{size_t{256} << 10};  // received bytes pass through it, and bytes to encrypt
  std::unordered_set<std::shared_ptr<ServerConnection>> connections;
  std::unordered_map<std::string, size_t> by_address;  // how many of them; never 0
  std::deque<IgnoredSocket> ignored;                   // in the order of their ends
  Timer sweep{loop};
  std::string date;  // value of the Date header in `date_second`
  std::chrono::seconds date_second{};
};

/// This is one accepted connection: a state machine over a non-blocking socket. It is used on its loop's thread only.
/// An exception of a step, or of the handler, closes the connection: that is the answer to the request.
class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(ServerLoop& home, UniqueFd fd, std::string peer);
  ~ServerConnection();

  EventLoop& loop() { return home_.loop; }
  void Run() noexcept;
  void Close();
  /// Ends this connection, which waits for a request. Its peer sees that after `close_delay` if it has never asked.
  void MakeRoom();
  /// Closes when no byte has moved for too long, or there will be no answer.
  void CloseIfIdle(std::chrono::steady_clock::time_point now);
  const std::string& peer() const { return peer_; }
  /// It may be closed for another one: it waits for a request, or its peer does not take the answer.
  bool can_make_room(std::chrono::steady_clock::time_point now) const { return waits_for_request() || IsStuck(now); }
  /// Returns true if this one is to be closed before another one, if both can make room.
  bool GoesBefore(const ServerConnection& other) const;
  void OnReply(HttpReply reply);
  /// The handler gave its responder up.
  void OnAbandoned();
  /// Abandons it from any thread, if there is no memory to say so on the loop: it is seen within a second.
  void Abandon() { lost_ = true; }

 private:
  class Parser;
  struct Socket;
  using Clock = std::chrono::steady_clock;

  static constexpr size_t kTurn = size_t{2} << 20;  // bytes moved before other connections get their turn

  enum class State { kHandshake, kReceive, kRespond, kReset, kDrain, kClosed };
  /// Says what to do after a step of the machine.
  enum class Next { kAgain, kWaitReadable, kWaitWritable, kWaitTimer, kWaitReply, kYield };
  /// Holds the bytes moved (0: end of stream or nothing yet, see `next`; -1: the connection is broken).
  struct Moved {
    ssize_t bytes = 0;
    std::optional<Next> wait;
  };

  bool waits_for_request() const;
  bool IsStuck(Clock::time_point now) const;
  void RunSteps();
  Next Step();
  Next Handshake();
  Next Receive();
  Next ReceiveMore();
  void BeginExchange();
  void DecideEarlyReply();
  Next Refuse(int status, std::string_view why);

  Next Respond();
  void BeginReply();
  Next SendSome();
  Next SendGathered(size_t allowance);
  Next SendFilePart(const SendFile& file, size_t allowance);
  Next SendEncrypted(size_t allowance);
  Next AfterSend(ssize_t sent);
  std::optional<Next> CarryOut(const ReplyStep& step);
  void Advance(size_t bytes);
  Next FinishReply();
  void HangUp();
  Next AwaitReset();
  Next Drain();

  void PlanSlice();
  size_t Allowance();
  Next WaitUntil(Clock::time_point when);

  Moved ReadSocket(MutableByteSpan into);
  Moved TlsResult(int result);
  void SendContinue();
  void EndExchange();
  const std::string& Date();
  void SaveInput();
  void Await(bool readable);

  ServerLoop& home_;
  const std::string peer_;
  const int fd_;  // owned by socket_
  std::unique_ptr<Socket> socket_;
  SSL* ssl_ = nullptr;
  Timer timer_;
  State state_;
  bool running_ = false;    // inside Run: what handlers call only leaves a note
  bool abandoned_ = false;  // there will be no answer
  std::atomic<bool> lost_{false};
  bool reading_armed_ = false;
  bool writing_armed_ = false;
  bool blocked_ = false;   // on the peer
  size_t turn_bytes_ = 0;  // moved since others had a turn
  Clock::time_point last_move_;
  Clock::time_point waits_since_;                // for a request
  std::optional<Clock::time_point> head_since_;  // of a handshake or head that is not complete
  bool overdue_ = false;                         // it was not complete in time when last looked at
  bool has_asked_ = false;                       // a request has been answered, and not refused

  // These belong to the request.
  std::unique_ptr<Parser> parser_;
  std::string_view input_;  // received, not yet parsed; is in scratch or in saved_
  std::string saved_;
  std::unique_ptr<HttpExchange> exchange_;
  bool is_head_ = false;
  bool http11_ = true;
  bool close_after_ = false;
  bool awaits_continue_ = false;
  bool discarding_ = false;  // the answer is there; the rest of the request's body is dropped

  // These belong to the answer.
  std::optional<HttpReply> reply_;
  bool replying_ = false;
  std::string head_;
  size_t head_sent_ = 0;
  size_t step_ = 0;
  uint64_t step_sent_ = 0;
  uint64_t bytes_left_ = 0;  // of all steps
  bool pausing_ = false;
  Clock::time_point pause_end_;
  uint64_t rate_ = 0;
  Clock::time_point pace_next_;
  size_t pace_slice_ = 0;
  size_t pace_credit_ = 0;
  Clock::time_point reset_deadline_;  // of kReset and kDrain
};

/// Counts a server's connections, so that it can wait for the last. Thread-safe.
class LiveConnections {
 public:
  LiveConnections();
  ~LiveConnections();
  void Add();
  void Remove();
  void WaitForNone();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
