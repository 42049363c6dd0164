#include "net/metrics_server.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <exception>
#include <utility>

#include "net/event_loop.h"
#include "net/http_server.h"

namespace millrace {

namespace {

// This is longer than the intervals at which metrics are usually read, so that connections are kept.
constexpr std::chrono::seconds kMetricsIdle{75};

class IgnoredBody final : public HttpExchange {
 public:
  void OnBody(ByteSpan) override {}
  void OnBodyEnd() override {}
};

HttpReply TextReply(int status, std::string_view type, std::string text) {
  HttpReply reply;
  reply.status = status;
  reply.headers.Add("Content-Type", type);
  reply.body.emplace_back(SendText{std::move(text)});
  return reply;
}

class MetricsHandler final : public HttpHandler {
 public:
  explicit MetricsHandler(MetricsServer::Collect collect) : collect_(std::move(collect)) {}

  std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead head, const HttpRequestFacts& /*facts*/,
                                          HttpResponder responder) override {
    responder.Send(Reply(head));
    return std::make_unique<IgnoredBody>();
  }

 private:
  HttpReply Reply(const HttpRequestHead& head) {
    constexpr std::string_view kPlain = "text/plain; charset=utf-8";
    if (head.method != "GET" && head.method != "HEAD") return TextReply(405, kPlain, "metrics are read by GET\n");
    const std::string_view path = std::string_view(head.target).substr(0, head.target.find('?'));
    if (path == "/") return TextReply(200, kPlain, "Metrics of Millrace are at /metrics\n");
    if (path != "/metrics") return TextReply(404, kPlain, "there is only /metrics here\n");
    try {
      MetricsText text;
      collect_(&text);
      return TextReply(200, MetricsText::kContentType, text.Text());
    } catch (const std::exception& error) {  // no memory
      return TextReply(503, kPlain, fmt::format("the metrics cannot be gathered: {}\n", error.what()));
    }
  }

  const MetricsServer::Collect collect_;
};

}  // namespace

absl::StatusOr<MetricsAddress> ParseMetricsAddress(std::string_view text) {
  MetricsAddress address;
  const size_t colon = text.rfind(':');
  const std::string_view port = colon == text.npos ? text : text.substr(colon + 1);
  bool good = true;
  if (colon != text.npos) {
    std::string_view host = text.substr(0, colon);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    good =
        !host.empty() && host.find_first_of("/@[] \t\r\n?#") == host.npos && (bracketed || host.find(':') == host.npos);
    address.host = host;
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (!good || port.empty() || error != std::errc() || end != port.data() + port.size()) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is not an address for metrics; write a port of this machine (9400), or HOST:PORT", text));
  }
  return address;
}

struct MetricsServer::Impl {
  explicit Impl(Collect collect) : loops(1), handler(std::move(collect)) {}

  EventLoops loops;
  MetricsHandler handler;
  std::string url;
  std::unique_ptr<HttpServer> server;  // the first to go
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const MetricsAddress& address, Collect collect) {
  auto impl = std::make_unique<Impl>(std::move(collect));
  HttpServerOptions options{.host = address.host, .port = address.port};
  options.idle_timeout = kMetricsIdle;
  options.max_connections = kMaxConnections;
  options.max_per_address = kMaxConnections / 2;
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start(impl->loops, std::move(options), impl->handler);
  if (!server.ok()) return Annotate(server.status(), "metrics");
  impl->server = *std::move(server);
  impl->url = fmt::format("http://{}/metrics", HostAndPort(address.host, impl->server->port()));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

uint16_t MetricsServer::port() const {
  return impl_->server->port();
}

const std::string& MetricsServer::url() const {
  return impl_->url;
}

}  // namespace millrace
