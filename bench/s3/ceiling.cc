// The least that a client can do for its bytes: GETs over keep-alive connections, one thread each, recv() (or SSL_read)
// straight into buffers that were used before the clock starts. No retries, no checks but the status. The S3
// client reaches a fraction of this. One JSON object on stdout, with the keys of get_bench.

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <latch>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/crypto.h"
#include "base/process.h"
#include "base/size.h"

namespace millrace {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Flags {
  std::string url;
  uint64_t objects = 0;  // 0: the URL is the object
  uint64_t count = 1;
  int connections = 1;
  int slots = 0;
  std::string part_size;
  std::string chunk_size = "256KiB";
  bool crc = false;
  std::string ca_file;
  std::string congestion = "reno";
};

/// A program that measures has no use for an error but to say it and stop.
[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "ceiling: %s\n", what.c_str());
  std::_Exit(1);
}

[[noreturn]] void FailErrno(const std::string& what) {
  Fail(what + ": " + std::strerror(errno));
}

uint64_t Size(const std::string& text) {
  const absl::StatusOr<uint64_t> size = ParseSize(text);
  if (!size.ok()) Fail(std::string(size.status().message()));
  return *size;
}

struct Url {
  bool tls = false;
  std::string host;
  std::string port;
  std::string path;  // with the query
};

Url ParseUrl(std::string_view text) {
  Url url;
  url.tls = text.starts_with("https://");
  if (!url.tls && !text.starts_with("http://")) Fail("the URL must begin with http:// or https://");
  text.remove_prefix(url.tls ? 8 : 7);
  const size_t slash = std::min(text.find('/'), text.size());
  const std::string_view authority = text.substr(0, slash);
  url.path = slash == text.size() ? "/" : std::string(text.substr(slash));
  const size_t colon = std::min(authority.rfind(':'), authority.size());
  url.host = authority.substr(0, colon);
  url.port = colon < authority.size() ? std::string(authority.substr(colon + 1)) : url.tls ? "443" : "80";
  return url;
}

/// A GET's number after the object's URL, as the names of run.py's data are made.
std::string PathOf(const Url& url, const Flags& flags, uint64_t object) {
  if (flags.objects == 0) return url.path;
  char number[24];
  std::snprintf(number, sizeof number, "%06llu", static_cast<unsigned long long>(object % flags.objects));
  return url.path + number;
}

using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

TlsContext MakeTls(const Flags& flags) {
  TlsContext context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (SSL_CTX_set_default_verify_paths(context.get()) != 1) Fail("the system's certificates cannot be read");
  if (!flags.ca_file.empty() && SSL_CTX_load_verify_locations(context.get(), flags.ca_file.c_str(), nullptr) != 1) {
    Fail(flags.ca_file + " is no PEM file of certificates");
  }
  return context;
}

class Connection {
 public:
  Connection(const Url& url, const Flags& flags, SSL_CTX* tls) : url_(url) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found) != 0) Fail("unknown host " + url.host);
    fd_ = socket(found->ai_family, SOCK_STREAM, 0);
    // Before connect: the server's side keeps its own, which is why run.py sets the namespace's.
    if (setsockopt(fd_, IPPROTO_TCP, TCP_CONGESTION, flags.congestion.data(),
                   static_cast<socklen_t>(flags.congestion.size())) != 0) {
      FailErrno("TCP_CONGESTION=" + flags.congestion);
    }
    const int one = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd_, found->ai_addr, found->ai_addrlen) != 0) FailErrno("connect");
    freeaddrinfo(found);
    if (tls != nullptr) StartTls(tls);
  }
  ~Connection() {
    if (ssl_ != nullptr) SSL_free(ssl_);
    close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Send(std::string_view bytes) {
    const auto sent = ssl_ != nullptr ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                                      : send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(bytes.size())) Fail("the request could not be sent");
  }

  size_t Receive(std::byte* into, size_t most) {
    const ssize_t got = ssl_ != nullptr ? SSL_read(ssl_, into, static_cast<int>(most)) : recv(fd_, into, most, 0);
    if (got <= 0) Fail("the connection ended within a response");
    return static_cast<size_t>(got);
  }

  const Url& url() const { return url_; }

 private:
  void StartTls(SSL_CTX* context) {
    ssl_ = SSL_new(context);
    SSL_set_fd(ssl_, fd_);
    SSL_set_tlsext_host_name(ssl_, url_.host.c_str());
    in_addr address{};
    if (inet_pton(AF_INET, url_.host.c_str(), &address) == 1) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), url_.host.c_str());
    } else {
      SSL_set1_host(ssl_, url_.host.c_str());
    }
    if (SSL_connect(ssl_) != 1) {
      char text[256];
      ERR_error_string_n(ERR_get_error(), text, sizeof text);
      Fail(std::string("TLS: ") + text);
    }
  }

  const Url& url_;
  int fd_ = -1;
  SSL* ssl_ = nullptr;
};

struct Head {
  int status = 0;
  uint64_t length = 0;     // of the body
  std::string_view extra;  // of the body, received together with the head; in the caller's buffer
};

/// Receives up to the empty line. Header names are compared as devstore, nginx and AWS write them.
Head ReceiveHead(Connection& connection, std::string& buffer) {
  buffer.resize(16 << 10);
  size_t have = 0;
  size_t end = std::string_view::npos;
  do {
    if (have == buffer.size()) Fail("the head of a response is too long");
    have += connection.Receive(reinterpret_cast<std::byte*>(buffer.data()) + have, buffer.size() - have);
    end = std::string_view(buffer).substr(0, have).find("\r\n\r\n");
  } while (end == std::string_view::npos);
  const std::string_view text = std::string_view(buffer).substr(0, end + 2);
  Head head;
  if (text.size() > 12) std::from_chars(text.data() + 9, text.data() + 12, head.status);
  size_t field = text.find("\r\nContent-Length: ");
  if (field == std::string_view::npos) field = text.find("\r\ncontent-length: ");
  if (field == std::string_view::npos) Fail("a response has no Content-Length");
  std::from_chars(text.data() + field + 18, text.data() + text.size(), head.length);
  head.extra = std::string_view(buffer).substr(end + 4, have - end - 4);
  return head;
}

std::string Request(const Connection& connection, std::string_view method, std::string_view path) {
  std::string text(method);
  text.append(" ").append(path).append(" HTTP/1.1\r\nHost: ");
  return text.append(connection.url().host).append(":").append(connection.url().port).append("\r\n");
}

/// Represents objects, cut into parts, dealt to connections in order.
class Load {
 public:
  Load(Url url, const Flags& flags)
      : url_(std::move(url)), flags_(flags), tls_(MakeTls(flags)), chunk_(Size(flags.chunk_size)) {
    size_ = ObjectSize();
    part_ = flags.part_size.empty() ? size_ : std::min(size_, Size(flags.part_size));
    parts_ = (size_ + part_ - 1) / part_;
    total_ = flags.count * parts_;
    buffers_.resize(static_cast<size_t>(flags.slots > 0 ? flags.slots : parts_ > 1 ? 1 : flags.connections));
    for (Buffer& buffer : buffers_) {
      buffer = Buffer(size_);
      std::fill(buffer.data(), buffer.data() + size_, std::byte{1});
    }
  }

  nlohmann::ordered_json Run() {
    std::latch ready(flags_.connections + 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < flags_.connections; ++i) {
      threads.emplace_back([this, &ready] {
        Connection connection(url_, flags_, url_.tls ? tls_.get() : nullptr);
        ready.arrive_and_wait();
        std::string head;
        for (uint64_t unit = next_++; unit < total_; unit = next_++) ReadPart(connection, unit, head);
      });
    }
    ready.arrive_and_wait();
    const SteadyClock::time_point begin = SteadyClock::now();
    const double cpu = CpuSeconds();
    for (std::thread& thread : threads) thread.join();
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    return Report(seconds, CpuSeconds() - cpu);
  }

 private:
  nlohmann::ordered_json Report(double seconds, double cpu_seconds) const {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const double gb = static_cast<double>(flags_.count * size_) / 1e9;
    return {{"objects", flags_.count},
            {"errors", 0},
            {"seconds", seconds},
            {"objects_per_second", static_cast<double>(flags_.count) / seconds},
            {"gb_per_second", gb / seconds},
            {"cpu_seconds_per_gb", cpu_seconds / gb},
            {"objects_per_cpu_second", static_cast<double>(flags_.count) / cpu_seconds},
            {"requests", total_},
            {"connections", flags_.connections},
            {"max_rss_bytes", usage.ru_maxrss * 1024},
            {"crc32c", crc_.load()}};
  }

  uint64_t ObjectSize() {
    Connection connection(url_, flags_, url_.tls ? tls_.get() : nullptr);
    connection.Send(Request(connection, "HEAD", PathOf(url_, flags_, 0)) + "\r\n");
    std::string buffer;
    const Head head = ReceiveHead(connection, buffer);
    if (head.status != 200) Fail("HEAD answers " + std::to_string(head.status));
    if (head.length == 0) Fail("the object is empty");
    return head.length;
  }

  void ReadPart(Connection& connection, uint64_t unit, std::string& head_buffer) {
    const uint64_t offset = unit % parts_ * part_;
    const uint64_t length = std::min(part_, size_ - offset);
    std::string request = Request(connection, "GET", PathOf(url_, flags_, unit / parts_));
    if (parts_ > 1) {
      request += "Range: bytes=" + std::to_string(offset) + "-" + std::to_string(offset + length - 1) + "\r\n";
    }
    connection.Send(request + "\r\n");
    const Head head = ReceiveHead(connection, head_buffer);
    if (head.status != (parts_ > 1 ? 206 : 200)) Fail("GET answers " + std::to_string(head.status));
    if (head.length != length) Fail("a response has another length than asked for");

    std::byte* const into = buffers_[unit / parts_ % buffers_.size()].data() + offset;
    std::memcpy(into, head.extra.data(), head.extra.size());
    uint32_t crc = flags_.crc ? Crc32c({into, head.extra.size()}) : 0;
    for (uint64_t have = head.extra.size(); have < length;) {
      const size_t got = connection.Receive(into + have, std::min(chunk_, length - have));
      if (flags_.crc) crc = Crc32c({into + have, got}, crc);  // while the bytes are in the cache
      have += got;
    }
    crc_ ^= crc;
  }

  const Url url_;
  const Flags& flags_;
  const TlsContext tls_;
  const uint64_t chunk_;
  uint64_t size_ = 0;  // of each object
  uint64_t part_ = 0;
  uint64_t parts_ = 0;  // of each object
  uint64_t total_ = 0;  // parts to read
  std::vector<Buffer> buffers_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint32_t> crc_{0};
};

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Flags flags;
  CLI::App app(
      "The least work for the bytes of GETs: recv or SSL_read of one thread a connection into buffers that were used "
      "before.\nThe store must take unsigned requests, or the URL be presigned.");
  app.add_option("url", flags.url, "http://host:port/bucket/key or a presigned URL")->required();
  app.add_option("--objects", flags.objects, "The URL is a prefix of so many objects, named 000000, 000001, ...");
  app.add_option("--count", flags.count, "Objects to read")->capture_default_str();
  app.add_option("--connections", flags.connections, "Connections, each with a thread")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--part", flags.part_size, "Read each object in ranges of this size, e.g. 128MiB [whole]");
  app.add_option("--slots", flags.slots,
                 "Buffers of an object's size, used in turn [one a connection, one with --part]");
  app.add_option("--chunk", flags.chunk_size, "Most bytes of one recv")->capture_default_str();
  app.add_flag("--crc", flags.crc, "One pass of CRC32C (ISA-L) over each chunk");
  app.add_option("--ca", flags.ca_file, "PEM file of the server's authority");
  app.add_option("--congestion", flags.congestion, "TCP congestion control of the client's sockets")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  millrace::Load load(millrace::ParseUrl(flags.url), flags);
  std::cout << load.Run().dump() << std::endl;
  return 0;
}
