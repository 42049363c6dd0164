#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

// A TCP relay on 127.0.0.1: what comes at a port of its own goes to a target, and back, each byte a fixed time later.
// The bandwidth stays what the machine gives: a direction holds up to 128 MiB, and `--measure` says how much goes
// through.

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = size_t{256} << 10;
constexpr size_t kMaxHeld = size_t{128} << 20;  // 10 ms of 12 GB/s

[[noreturn]] void Die(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int Listen(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Die("no port to listen on");
  }
  *port = ntohs(address.sin_port);
  return fd;
}

/// -1 if nobody listens there.
int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("no socket");
  const sockaddr_in address = Loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

void MakeReady(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

struct Piece {
  std::unique_ptr<char[]> bytes;
  size_t begin = 0;
  size_t end = 0;
  Clock::time_point due;
};

/// Pieces that were used before: fresh memory would cost more than the copy.
class Pieces {
 public:
  Piece Take() {
    if (free_.empty()) return {.bytes = std::make_unique<char[]>(kPieceBytes)};
    Piece piece = std::move(free_.back());
    free_.pop_back();
    return piece;
  }
  void Give(Piece piece) { free_.push_back(std::move(piece)); }

 private:
  std::vector<Piece> free_;
};

/// One of the two directions of a connection.
class Direction {
 public:
  Direction(int from, int to, Clock::duration delay, Pieces& pieces)
      : from_(from), to_(to), delay_(delay), pieces_(pieces) {}

  bool wants_bytes() const { return !ended_ && held_ < kMaxHeld; }
  bool has_due(Clock::time_point now) const { return !queue_.empty() && queue_.front().due <= now; }
  bool done() const { return ended_ && queue_.empty(); }
  /// When there is something to do without an event; time_point::max(): never.
  Clock::time_point next() const { return queue_.empty() ? Clock::time_point::max() : queue_.front().due; }

  /// False: the connection broke.
  bool Read(Clock::time_point now) {
    Piece piece = pieces_.Take();
    const ssize_t got = recv(from_, piece.bytes.get(), kPieceBytes, 0);
    if (got <= 0) {
      pieces_.Give(std::move(piece));
      if (got == 0) ended_ = true;
      if (done()) shutdown(to_, SHUT_WR);
      return got == 0 || errno == EAGAIN || errno == EINTR;
    }
    piece.begin = 0;
    piece.end = static_cast<size_t>(got);
    piece.due = now + delay_;
    held_ += piece.end;
    queue_.push_back(std::move(piece));
    return true;
  }

  /// What is due. False: the connection broke.
  bool Write(Clock::time_point now) {
    while (has_due(now)) {
      Piece& piece = queue_.front();
      const ssize_t sent = send(to_, piece.bytes.get() + piece.begin, piece.end - piece.begin, MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      piece.begin += static_cast<size_t>(sent);
      held_ -= static_cast<size_t>(sent);
      if (piece.begin < piece.end) return true;
      pieces_.Give(std::move(piece));
      queue_.pop_front();
    }
    if (done()) shutdown(to_, SHUT_WR);
    return true;
  }

 private:
  const int from_;
  const int to_;
  const Clock::duration delay_;
  Pieces& pieces_;
  std::deque<Piece> queue_;
  size_t held_ = 0;
  bool ended_ = false;
};

struct Connection {
  Connection(int client, int target, Clock::duration delay, Pieces& pieces)
      : client(client), target(target), there(client, target, delay, pieces), back(target, client, delay, pieces) {}
  ~Connection() {
    close(client);
    close(target);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int client;
  int target;
  Direction there;
  Direction back;
  bool broken = false;
};

/// One thread, which polls: there are some dozens of connections at most.
class Relay {
 public:
  explicit Relay(Clock::duration delay) : delay_(delay) {}
  ~Relay() {
    for (const Listener& each : listeners_) close(each.fd);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// The port at which `target` is reached from now on.
  uint16_t Add(uint16_t target) {
    uint16_t port = 0;
    listeners_.push_back({Listen(&port), target});
    MakeReady(listeners_.back().fd);
    return port;
  }

  void Run(const std::atomic<bool>& stop) {
    while (!stop) {
      Wait();
      const Clock::time_point now = Clock::now();
      for (size_t i = 0; i < listeners_.size(); ++i) {
        if (polled_[i].revents != 0) Accept(listeners_[i]);
      }
      size_t at = listeners_.size();
      for (Connection& each : connections_) {
        if (at >= polled_.size()) break;  // accepted just now
        Serve(each, polled_[at].revents, polled_[at + 1].revents, now);
        at += 2;
      }
      connections_.remove_if(
          [](const Connection& each) { return each.broken || (each.there.done() && each.back.done()); });
    }
  }

 private:
  struct Listener {
    int fd;
    uint16_t target;
  };

  void Wait() {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + std::chrono::milliseconds(100);
    polled_.clear();
    for (const Listener& each : listeners_) polled_.push_back({each.fd, POLLIN, 0});
    for (const Connection& each : connections_) {
      polled_.push_back({each.client, Events(each.there, each.back, now), 0});
      polled_.push_back({each.target, Events(each.back, each.there, now), 0});
      // What is due already waits for room, of which an event tells.
      for (const Direction* direction : {&each.there, &each.back}) {
        if (direction->next() > now) next = std::min(next, direction->next());
      }
    }
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(next - now).count();
    const timespec timeout{.tv_sec = nanoseconds / 1'000'000'000, .tv_nsec = nanoseconds % 1'000'000'000};
    ppoll(polled_.data(), polled_.size(), &timeout, nullptr);
  }

  static short Events(const Direction& from_here, const Direction& to_here, Clock::time_point now) {
    return static_cast<short>((from_here.wants_bytes() ? POLLIN : 0) | (to_here.has_due(now) ? POLLOUT : 0));
  }

  void Accept(const Listener& listener) {
    const int client = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int target = Connect(listener.target);
    if (target < 0) {
      close(client);
      return;
    }
    MakeReady(client);
    MakeReady(target);
    connections_.emplace_back(client, target, delay_, pieces_);
  }

  static void Serve(Connection& each, short client, short target, Clock::time_point now) {
    constexpr short kReads = POLLIN | POLLHUP | POLLERR;
    const bool read = (!(client & kReads) || !each.there.wants_bytes() || each.there.Read(now)) &&
                      (!(target & kReads) || !each.back.wants_bytes() || each.back.Read(now));
    each.broken = !read || !each.there.Write(now) || !each.back.Write(now);
  }

  const Clock::duration delay_;
  Pieces pieces_;
  std::vector<Listener> listeners_;
  std::list<Connection> connections_;
  std::vector<pollfd> polled_;
};

std::atomic<bool> stopping{false};

/// Bytes a second through a relay, of one connection, from a thread that writes to one that reads.
double Measure(Clock::duration delay, std::chrono::duration<double> duration) {
  uint16_t port = 0;
  const int listener = Listen(&port);
  std::thread source([listener] {
    const int to = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const std::vector<char> bytes(kPieceBytes, 'x');
    while (send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    close(to);
  });
  auto relay = std::make_unique<Relay>(delay);
  const uint16_t through = relay->Add(port);
  std::atomic<bool> stop{false};
  std::thread relaying([&] { relay->Run(stop); });
  const int from = Connect(through);
  if (from < 0) Die("the relay does not answer");
  std::vector<char> bytes(kPieceBytes);
  ssize_t got = recv(from, bytes.data(), bytes.size(), 0);  // the delay has passed
  uint64_t received = 0;
  const Clock::time_point begin = Clock::now();
  while (got > 0 && Clock::now() - begin < duration) {
    got = recv(from, bytes.data(), bytes.size(), 0);
    received += static_cast<uint64_t>(std::max<ssize_t>(0, got));
  }
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  close(from);
  stop = true;
  relaying.join();
  relay.reset();  // so that the source ends
  source.join();
  close(listener);
  return static_cast<double>(received) / seconds.count();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Relays TCP connections to ports of 127.0.0.1, each byte later; prints `TARGET PORT` for each");
  double delay_ms = 0;
  double measure_seconds = 0;
  std::vector<uint16_t> targets;
  app.add_option("--delay-ms", delay_ms, "of a byte, in each direction")->check(CLI::Range(0.0, 10'000.0));
  app.add_option("--measure", measure_seconds, "for so many seconds: print the bytes a second that go through");
  app.add_option("targets", targets, "ports of 127.0.0.1");
  CLI11_PARSE(app, argc, argv);
  const auto delay = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(delay_ms));
  try {
    if (measure_seconds > 0) {
      std::printf("%.0f\n", Measure(delay, std::chrono::duration<double>(measure_seconds)));
      return 0;
    }
    struct sigaction action {};
    action.sa_handler = [](int) { stopping = true; };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
    Relay relay(delay);
    for (const uint16_t target : targets) std::printf("%d %d\n", target, relay.Add(target));
    std::fflush(stdout);
    relay.Run(stopping);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "service_relay: %s\n", error.what());
    return 1;
  }
  return 0;
}
