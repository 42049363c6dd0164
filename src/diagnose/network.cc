#include "diagnose/network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "base/unique_fd.h"
#include "net/text_answer.h"

namespace millrace {

namespace {

constexpr int kConnectMs = 3000;

// "" when it is connected.
std::string ConnectProblem(const SocketAddress& address) {
  const UniqueFd socket_fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket_fd.get() < 0) return std::strerror(errno);
  if (connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.length) == 0) return {};
  if (errno != EINPROGRESS) return std::strerror(errno);
  pollfd waiting{.fd = socket_fd.get(), .events = POLLOUT, .revents = 0};
  const int ready = poll(&waiting, 1, kConnectMs);
  if (ready < 0) return std::strerror(errno);
  if (ready == 0) return fmt::format("no answer within {} s", kConnectMs / 1000);
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket_fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace

absl::StatusOr<std::vector<SocketAddress>> ResolveName(const HttpEndpoint& server) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &hints, &found);
  if (error != 0) return absl::NotFoundError(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.bytes, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    char text[NI_MAXHOST] = "?";
    getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    address.text = text;
  }
  return addresses;
}

absl::StatusOr<std::string> TryConnect(const std::vector<SocketAddress>& addresses) {
  std::string problems;
  for (const SocketAddress& address : addresses) {
    const auto start = std::chrono::steady_clock::now();
    const std::string problem = ConnectProblem(address);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (problem.empty()) return fmt::format("connected to {} in {:.1f} ms", address.text, took.count());
    problems += fmt::format("{}{}: {}", problems.empty() ? "" : "; ", address.text, problem);
  }
  return absl::UnavailableError(problems);
}

ProbeAnswer Probe(Runtime& runtime, const HttpEndpoint& server, const std::string& host, const std::string& path,
                  const std::string& ca_file, const HttpProxies& proxies) {
  HttpClientOptions options;
  options.ca_file = ca_file;
  options.proxies = proxies;
  HttpClient client(runtime.loops(), std::move(options));
  TextRequest request{.endpoint = server, .head = {"HEAD", path, {}}};
  request.head.headers.Add("Host", host);
  const TextAnswer answer = AskForText(client, runtime.loops().at(0), std::move(request)).get();
  ProbeAnswer probe;
  probe.status = answer.head.status;
  if (probe.status == 0) {
    probe.error = answer.result.error;
    probe.detail = answer.result.detail;
    return probe;
  }
  // A head says all that is asked for.
  probe.server = answer.head.headers.Find("server").value_or("");
  probe.region = answer.head.headers.Find("x-amz-bucket-region").value_or("");
  if (const std::optional<absl::Time> date = answer.date()) probe.clock_offset = *date - answer.begun;
  return probe;
}

}  // namespace millrace
