#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

// Implements a TCP relay on 127.0.0.1. Bytes from its own port go to a target, and back, each a fixed time later. The
// bandwidth is that of the machine: a direction holds up to 128 MiB, and each connection has a thread. With `--gbits`
// all connections share a wire of that speed in each direction, as those of a host do. Moving pages through pipes by
// splice() takes a quarter more CPU on loopback than copying bytes. `--measure` measures the throughput of some
// connections, with the delay. Their threads only send, and another one only receives, so that it is an upper bound.

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

/// Pieces that were used before, since fresh memory would cost more than the copy. All connections share them, and the
/// piece that was used last is used first. So if connections carry bytes in turns, the relay touches no more memory
/// than with one connection, and the caches hold it. The class is thread-safe.
class Pieces {
 public:
  Piece Take() {
    const std::lock_guard lock(mutex_);
    Piece piece;
    if (free_.empty()) {
      piece.bytes = std::make_unique_for_overwrite<char[]>(kPieceBytes);
    } else {
      piece = std::move(free_.back());
      free_.pop_back();
    }
    return piece;
  }
  void Give(Piece piece) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(piece));
  }

 private:
  std::mutex mutex_;
  std::vector<Piece> free_;
};

/// Says how fast bytes go, and how long they take.
struct Speed {
  Clock::duration delay{};
  double bytes_per_second = 0;  // of all connections together, in each direction; 0: as fast as they come
};

/// Represents the wire that all connections share in one direction. It is thread-safe.
class Wire {
 public:
  explicit Wire(Speed speed) : speed_(speed) {}

  /// Returns the time at which bytes that come now arrive.
  Clock::time_point Arrival(Clock::time_point now, size_t bytes) {
    if (speed_.bytes_per_second == 0) return now + speed_.delay;
    const std::lock_guard lock(mutex_);
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / speed_.bytes_per_second);
    free_ = std::max(free_, now) + std::chrono::duration_cast<Clock::duration>(takes);
    return free_ + speed_.delay;
  }
  /// When it takes more bytes; not after `now`: it does. Some hundred KiB of each connection lie before it.
  Clock::time_point opens() const {
    if (speed_.bytes_per_second == 0) return {};
    const std::lock_guard lock(mutex_);
    return free_ - kBacklog;
  }

 private:
  static constexpr std::chrono::microseconds kBacklog{500};

  const Speed speed_;
  mutable std::mutex mutex_;
  Clock::time_point free_{};
};

/// Represents one of the two directions of a connection.
class Direction {
 public:
  Direction(int from, int to, Wire& wire, Pieces& pieces) : from_(from), to_(to), wire_(wire), pieces_(pieces) {}

  bool wants_bytes(Clock::time_point now) const { return !ended_ && held_ < kMaxHeld && wire_.opens() <= now; }
  bool has_due(Clock::time_point now) const { return !queue_.empty() && queue_.front().due <= now; }
  bool done() const { return ended_ && queue_.empty(); }
  /// When there is something to do after `now` without an event; time_point::max(): never.
  Clock::time_point next(Clock::time_point now) const {
    Clock::time_point next = Clock::time_point::max();
    // Pieces that are due already wait for room, which an event reports.
    if (!queue_.empty() && queue_.front().due > now) next = queue_.front().due;
    if (const Clock::time_point opens = wire_.opens(); !ended_ && opens > now) next = std::min(next, opens);
    return next;
  }

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
    piece.due = wire_.Arrival(now, piece.end);
    held_ += piece.end;
    queue_.push_back(std::move(piece));
    return true;
  }

  /// Writes the pieces that are due. Returns false if the connection broke.
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
  Wire& wire_;
  Pieces& pieces_;
  std::deque<Piece> queue_;
  size_t held_ = 0;
  bool ended_ = false;
};

/// Represents the two wires that connections share.
struct Way {
  explicit Way(Speed speed) : there(speed), back(speed) {}

  Wire there;
  Wire back;
  Pieces pieces;
};

/// A connection, and the thread that carries it until it ends, or `stop`.
class Connection {
 public:
  Connection(int client, int target, Way& way, const std::atomic<bool>& stop)
      : client_(client),
        target_(target),
        there_(client, target, way.there, way.pieces),
        back_(target, client, way.back, way.pieces),
        thread_([this, &stop] { Carry(stop); }) {}
  ~Connection() {
    thread_.join();
    close(client_);
    close(target_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool ended() const { return ended_; }

 private:
  void Carry(const std::atomic<bool>& stop) {
    bool goes_on = true;
    while (goes_on && !stop && !(there_.done() && back_.done())) {
      std::array<pollfd, 2> polled{pollfd{client_, 0, 0}, pollfd{target_, 0, 0}};
      Wait(polled);
      goes_on = Serve(polled[0].revents, polled[1].revents, Clock::now());
    }
    // Each peer learns of it at once, and not when this is destroyed.
    shutdown(client_, SHUT_RDWR);
    shutdown(target_, SHUT_RDWR);
    ended_ = true;
  }

  void Wait(std::array<pollfd, 2>& polled) const {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + std::chrono::milliseconds(100);
    polled[0].events = Events(there_, back_, now);
    polled[1].events = Events(back_, there_, now);
    for (const Direction* direction : {&there_, &back_}) next = std::min(next, direction->next(now));
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(next - now).count();
    const timespec timeout{.tv_sec = nanoseconds / 1'000'000'000, .tv_nsec = nanoseconds % 1'000'000'000};
    ppoll(polled.data(), polled.size(), &timeout, nullptr);
  }

  static short Events(const Direction& from_here, const Direction& to_here, Clock::time_point now) {
    return static_cast<short>((from_here.wants_bytes(now) ? POLLIN : 0) | (to_here.has_due(now) ? POLLOUT : 0));
  }

  bool Serve(short client, short target, Clock::time_point now) {
    constexpr short kReads = POLLIN | POLLHUP | POLLERR;
    const bool read = (!(client & kReads) || !there_.wants_bytes(now) || there_.Read(now)) &&
                      (!(target & kReads) || !back_.wants_bytes(now) || back_.Read(now));
    return read && there_.Write(now) && back_.Write(now);
  }

  const int client_;
  const int target_;
  Direction there_;
  Direction back_;
  std::atomic<bool> ended_{false};
  std::thread thread_;  // uses all of the above
};

/// One thread that accepts, and one for each connection: there are some dozens at most.
class Relay {
 public:
  Relay(Speed speed, const std::atomic<bool>& stop) : stop_(stop), way_(speed) {}
  ~Relay() {
    EndConnections();
    for (const pollfd& each : polled_) close(each.fd);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Returns the port at which `target` is reached from now on.
  uint16_t Add(uint16_t target) {
    uint16_t port = 0;
    polled_.push_back({Listen(&port), POLLIN, 0});
    targets_.push_back(target);
    MakeReady(polled_.back().fd);
    return port;
  }

  /// Until `stop`.
  void Run() {
    while (!stop_) {
      poll(polled_.data(), polled_.size(), 100);
      for (size_t i = 0; i < polled_.size(); ++i) {
        if (polled_[i].revents != 0) Accept(polled_[i].fd, targets_[i]);
      }
      connections_.remove_if([](const Connection& each) { return each.ended(); });
    }
    EndConnections();
  }

 private:
  // Their threads are joined, and must not wait for `stop_`, which nobody may set after an error.
  void EndConnections() {
    over_ = true;
    connections_.clear();
  }

  void Accept(int listener, uint16_t to) {
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int target = Connect(to);
    if (target < 0) {
      close(client);
      return;
    }
    MakeReady(client);
    MakeReady(target);
    connections_.emplace_back(client, target, way_, over_);
  }

  const std::atomic<bool>& stop_;
  std::atomic<bool> over_{false};
  std::vector<pollfd> polled_;  // that are listened at
  std::vector<uint16_t> targets_;
  Way way_;  // outlives connections_
  std::list<Connection> connections_;
};

std::atomic<bool> stopping{false};

/// This thread runs there only. Does nothing if that is nullopt.
void RunOn(std::optional<int> cpu) {
  if (!cpu) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(*cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) Die("no such CPU");
}

/// Represents the settings of a measurement.
struct Measured {
  Speed speed;
  std::chrono::duration<double> duration;
  bool direct = false;  // without the relay
  size_t connections = 1;
  std::vector<int> source_cpus;  // of the threads that send, in turn; empty: anywhere
  std::optional<int> sink_cpu;   // of the one that receives
};

/// A thread that sends to the first who connects, until that closes the connection.
class SendingThread {
 public:
  explicit SendingThread(std::optional<int> cpu) : listener_(Listen(&port_)), thread_([this, cpu] { Send(cpu); }) {}
  ~SendingThread() {
    shutdown(listener_, SHUT_RDWR);  // nobody may have come
    thread_.join();
    close(listener_);
  }
  SendingThread(const SendingThread&) = delete;
  SendingThread& operator=(const SendingThread&) = delete;

  uint16_t port() const { return port_; }

 private:
  void Send(std::optional<int> cpu) const {
    RunOn(cpu);
    const int to = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (to < 0) return;
    const std::vector<char> bytes(kPieceBytes, 'x');
    while (send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    close(to);
  }

  uint16_t port_ = 0;
  const int listener_;
  std::thread thread_;
};

/// Returns bytes that come from these connections, in turn, from the first one on.
double Receive(std::vector<pollfd>& from, std::chrono::duration<double> duration) {
  std::vector<char> bytes(kPieceBytes);
  uint64_t received = 0;
  std::optional<Clock::time_point> begin;
  while (!begin || Clock::now() - *begin < duration) {
    if (poll(from.data(), from.size(), -1) < 0) Die("no connection to wait for");
    for (const pollfd& each : from) {
      if (each.revents == 0) continue;
      const ssize_t got = recv(each.fd, bytes.data(), bytes.size(), 0);
      if (got <= 0) Die("the connection broke");
      if (begin) received += static_cast<uint64_t>(got);
    }
    if (!begin) begin = Clock::now();  // the delay has passed
  }
  return static_cast<double>(received) / std::chrono::duration<double>(Clock::now() - *begin).count();
}

/// Returns bytes a second from some threads that send to this one.
double Measure(const Measured& measured) {
  std::list<SendingThread> sources;
  std::atomic<bool> stop{false};
  Relay relay(measured.speed, stop);
  std::vector<uint16_t> ports;
  for (size_t i = 0; i < measured.connections; ++i) {
    const std::vector<int>& cpus = measured.source_cpus;
    const uint16_t port =
        sources.emplace_back(cpus.empty() ? std::nullopt : std::optional(cpus[i % cpus.size()])).port();
    ports.push_back(measured.direct ? port : relay.Add(port));
  }
  std::thread relaying([&] { relay.Run(); });
  RunOn(measured.sink_cpu);  // after all threads were started, which would inherit it
  std::vector<pollfd> from;
  for (const uint16_t port : ports) from.push_back({Connect(port), POLLIN, 0});
  double rate = 0;
  if (std::all_of(from.begin(), from.end(), [](const pollfd& each) { return each.fd >= 0; })) {
    rate = Receive(from, measured.duration);
  }
  for (const pollfd& each : from) close(each.fd);
  stop = true;
  relaying.join();
  return rate;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Relays TCP connections to ports of 127.0.0.1, each byte later; prints `TARGET PORT` for each");
  double delay_ms = 0;
  double gbits = 0;
  double measure_seconds = 0;
  Measured measured;
  std::vector<uint16_t> targets;
  app.add_option("--delay-ms", delay_ms, "of a byte, in each direction")->check(CLI::Range(0.0, 10'000.0));
  app.add_option("--gbits", gbits, "gigabits a second that all connections share in each direction (default: no bound)")
      ->check(CLI::Range(0.001, 1000.0));
  app.add_option("--measure", measure_seconds, "for so many seconds: print the bytes a second that go through");
  app.add_flag("--direct", measured.direct, "with --measure: without the relay");
  app.add_option("--connections", measured.connections, "with --measure: how many (default 1)")
      ->check(CLI::Range(1, 64));
  app.add_option("--source-cpus", measured.source_cpus, "with --measure: CPUs of the threads that send, in turn")
      ->delimiter(',');
  app.add_option("--sink-cpu", measured.sink_cpu, "with --measure: the CPU of the thread that receives");
  app.add_option("targets", targets, "ports of 127.0.0.1");
  CLI11_PARSE(app, argc, argv);
  const Speed speed{
      .delay = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(delay_ms)),
      .bytes_per_second = gbits * 1e9 / 8};
  try {
    if (measure_seconds > 0) {
      measured.speed = speed;
      measured.duration = std::chrono::duration<double>(measure_seconds);
      const double rate = Measure(measured);
      if (rate <= 0) throw std::runtime_error("the relay does not answer");
      std::printf("%.0f\n", rate);
      return 0;
    }
    struct sigaction action {};
    action.sa_handler = [](int) { stopping = true; };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
    Relay relay(speed, stopping);
    for (const uint16_t target : targets) std::printf("%d %d\n", target, relay.Add(target));
    std::fflush(stdout);
    relay.Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "service_relay: %s\n", error.what());
    return 1;
  }
  return 0;
}
