#include "net/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "base/errno_status.h"
#include "base/log.h"
#include "base/log_exception.h"
#include "net/server_connection.h"
#include "net/tls.h"

namespace millrace {

namespace {

namespace asio = boost::asio;

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeContext>;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

absl::StatusOr<TlsContext> MakeTlsContext(const TlsIdentity& identity, const std::string& client_ca_pem) {
  const auto failed = [] { return absl::InvalidArgumentError("the server's TLS certificate or key cannot be used"); };
  TlsContext context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr || !UseIdentity(context.get(), identity)) return failed();
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  if (!client_ca_pem.empty() && !RequireClients(context.get(), client_ca_pem)) {
    return absl::InvalidArgumentError(
        "there is no certificate of an authority in the text that clients' ones come from");
  }
  return context;
}

/// Throughput over loopback is a quarter with the default of some machines (bbr), and small answers must not wait for
/// others.
void TuneSocket(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  constexpr std::string_view kReno = "reno";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

/// These errors are particular to sockets; the rest is as for files.
absl::Status ListenError(int error, const std::string& host, uint16_t port) {
  const std::string what = fmt::format("cannot listen on {}:{}", host, port);
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(
          what + ": the port is in use; stop the program that uses it, or choose another (0: any free one)");
    case EACCES:
      return absl::PermissionDeniedError(what + ": not permitted; ports below 1024 need root");
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(what + ": it is not an address of this machine");
    default:
      return ErrnoStatus(error, fmt::format("{}:{}", host, port), "listening");
  }
}

absl::StatusOr<UniqueFd> Listen(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return absl::InvalidArgumentError(fmt::format("cannot listen on {}: {}", host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ListenError(errno, host, port);
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  TuneSocket(fd.get());
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return ListenError(errno, host, port);
  }
  return fd;
}

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void Sweep(ServerLoop& home) {
  const auto now = std::chrono::steady_clock::now();
  for (auto at = home.connections.begin(); at != home.connections.end();) {
    const std::shared_ptr<ServerConnection> connection = *at++;  // closing takes it out
    connection->CloseIfIdle(now);
  }
  while (!home.ignored.empty() && home.ignored.front().end <= now) home.ignored.pop_front();
  const auto again = [&home] {
    home.sweep.Start(std::min({home.idle_timeout, home.head_timeout, std::chrono::milliseconds(1000)}),
                     [&home] { Sweep(home); });
  };
  try {
    again();
  } catch (const std::exception& error) {
    LogException("net", error);
    again();
  }
}

std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return text;
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&address)->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    in6_addr& network = reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&network) != 0) {
      inet_ntop(AF_INET, network.s6_addr + 12, text, sizeof text);
    } else {
      std::fill(network.s6_addr + 8, network.s6_addr + 16, 0);  // a host may take any address of its network
      inet_ntop(AF_INET6, &network, text, sizeof text);
    }
  }
  return text;
}

// Closes a connection for another one: of an address, or with "" of any. False if there is none that can be closed.
bool MakeRoom(ServerLoop& home, const std::string& peer) {
  const auto now = std::chrono::steady_clock::now();
  std::shared_ptr<ServerConnection> first;
  for (const std::shared_ptr<ServerConnection>& each : home.connections) {
    if (!each->can_make_room(now) || (!peer.empty() && each->peer() != peer)) continue;
    if (first == nullptr || each->GoesBefore(*first)) first = each;
  }
  if (first == nullptr) return false;
  first->MakeRoom();
  return true;
}

bool HasRoom(ServerLoop& home, const std::string& peer) {
  const auto count = home.by_address.find(peer);
  if (count != home.by_address.end() && count->second >= home.max_per_address) return MakeRoom(home, peer);
  return home.connections.size() < home.max_connections || MakeRoom(home, "");
}

void Adopt(ServerLoop& home, UniqueFd fd) {
  try {
    const std::string peer = PeerOf(fd.get());
    if (!HasRoom(home, peer)) return;
    const auto connection = std::make_shared<ServerConnection>(home, std::move(fd), peer);
    size_t& count = home.by_address[peer];
    home.connections.insert(connection);
    ++count;
    connection->Run();
  } catch (const std::exception& error) {  // Asio could not watch the descriptor, say
    Log(LogLevel::kWarning, "net", fmt::format("cannot serve a connection: {}", error.what()));
  }
}

/// Takes connections in, on one loop, and deals them to all in turn.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(EventLoop& loop, int fd, std::vector<ServerLoop*> homes)
      : descriptor_(loop.context(), fd), retry_(loop), homes_(std::move(homes)) {}

  void Wait() {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this()](const boost::system::error_code& error) {
                             if (!error) self->AcceptAllGuarded();
                           });
  }
  void Close() {
    retry_.Cancel();
    boost::system::error_code ignored;
    descriptor_.close(ignored);
  }

 private:
  void AcceptAllGuarded() {
    try {
      AcceptAll();
    } catch (const std::exception& error) {  // of the connection at hand; those after it are still to be accepted
      LogException("net", error);
      retry_.Start(kRetryDelay, [self = shared_from_this()] { self->AcceptAllGuarded(); });
    }
  }

  void AcceptAll() {
    for (;;) {
      UniqueFd fd(accept4(descriptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd) {
        TuneSocket(fd.get());
        ServerLoop& home = *homes_[next_++ % homes_.size()];
        home.loop.Post([&home, fd = std::move(fd)]() mutable { Adopt(home, std::move(fd)); });
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        const absl::Status status = ErrnoStatus(errno, "the HTTP server", "accepting a connection");
        Log(LogLevel::kWarning, "net", fmt::format("{}; trying again", ToStd(status.message())));
        retry_.Start(kRetryDelay, [self = shared_from_this()] { self->AcceptAllGuarded(); });
        return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        break;
      }
    }
    Wait();
  }

  static constexpr std::chrono::milliseconds kRetryDelay{100};

  asio::posix::stream_descriptor descriptor_;
  Timer retry_;
  const std::vector<ServerLoop*> homes_;
  size_t next_ = 0;
};

}  // namespace

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
    return;
  }
  const std::weak_ptr<ServerConnection> weak = connection_;
  try {
    loop.Post([connection = std::move(connection_)] { connection->OnAbandoned(); });
  } catch (const std::exception&) {
    if (const auto lost = weak.lock()) lost->Abandon();
  }
}

void HttpResponder::Send(HttpReply reply) {
  // Moved out first, and always ended on the loop: the connection may be destroyed with it.
  std::shared_ptr<ServerConnection> connection = std::move(connection_);
  EventLoop& loop = connection->loop();
  if (loop.InLoop()) return connection->OnReply(std::move(reply));
  const std::weak_ptr<ServerConnection> weak = connection;
  try {
    loop.Post([connection = std::move(connection), reply = std::move(reply)]() mutable {
      connection->OnReply(std::move(reply));
    });
  } catch (const std::exception& error) {
    LogException("net", error);
    if (const auto lost = weak.lock()) lost->Abandon();
  }
}

struct HttpServer::Impl {
  explicit Impl(EventLoops& event_loops) : loops(event_loops) {}

  EventLoops& loops;
  TlsContext tls;
  std::shared_ptr<LiveConnections> live = std::make_shared<LiveConnections>();
  std::vector<std::unique_ptr<ServerLoop>> homes;
  std::shared_ptr<Acceptor> acceptor;
  uint16_t port = 0;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(EventLoops& loops, HttpServerOptions options,
                                                              HttpHandler& handler) {
  auto impl = std::make_unique<Impl>(loops);
  if (options.tls) {
    ASSIGN_OR_RETURN(impl->tls, MakeTlsContext(*options.tls, options.client_ca_pem));
  }
  ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.host, options.port));
  impl->port = PortOf(listener.get());
  std::vector<ServerLoop*> homes;
  const auto part = [&loops](size_t limit) { return limit / loops.size() + (limit % loops.size() != 0 ? 1 : 0); };
  for (size_t i = 0; i < loops.size(); ++i) {
    // NOLINTNEXTLINE(modernize-make-unique): which takes no designated initialisers
    impl->homes.push_back(std::unique_ptr<ServerLoop>(new ServerLoop{.loop = loops.at(i),
                                                                     .handler = handler,
                                                                     .tls = impl->tls.get(),
                                                                     .idle_timeout = options.idle_timeout,
                                                                     .head_timeout = options.head_timeout,
                                                                     .max_connections = part(options.max_connections),
                                                                     .max_per_address = part(options.max_per_address),
                                                                     .close_delay = options.close_delay,
                                                                     .live = impl->live}));
    ServerLoop& home = *impl->homes.back();
    homes.push_back(&home);
    home.loop.Post([&home] { Sweep(home); });
  }
  impl->acceptor = std::make_shared<Acceptor>(loops.at(0), listener.Release(), std::move(homes));
  loops.at(0).Post([acceptor = impl->acceptor] { acceptor->Wait(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
  RunAndWait(impl_->loops.at(0), [this] {
    impl_->acceptor->Close();
    impl_->acceptor.reset();
  });
  // No connection is taken in any more, and those on their way to a loop arrive before what is posted now.
  for (const auto& home : impl_->homes) {
    RunAndWait(home->loop, [&home] {
      home->sweep.Cancel();
      const std::vector<std::shared_ptr<ServerConnection>> all(home->connections.begin(), home->connections.end());
      for (const auto& connection : all) connection->Close();
    });
  }
  impl_->live->WaitForNone();
  for (auto& home : impl_->homes) {
    EventLoop& loop = home->loop;
    RunAndWait(loop, [&home] { home.reset(); });
  }
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

}  // namespace millrace
