#include "metrics/scrape.h"

#include <fmt/format.h>

#include <chrono>
#include <latch>
#include <memory>
#include <utility>

namespace millrace {

namespace {

constexpr std::chrono::milliseconds kScrapePatience{2000};

HttpClientOptions ScrapeOptions() {
  HttpClientOptions options;
  options.max_connections = 2;
  options.connect_timeout = kScrapePatience;
  options.first_byte_timeout = kScrapePatience;
  options.stall_timeout = kScrapePatience;
  return options;
}

/// One request. Fresh connections only: a process that has ended and was started again answers on a new one.
class PageCall final : public HttpResponseHandler {
 public:
  PageCall(const MetricsAddress& address, std::shared_ptr<std::latch> done) : done_(std::move(done)) {
    const bool is_v6 = address.host.find(':') != std::string::npos;
    name_ = fmt::format("{}{}{}:{}", is_v6 ? "[" : "", address.host, is_v6 ? "]" : "", address.port);
    request_.endpoint = {.host = address.host, .port = address.port};
    request_.head.method = "GET";
    request_.head.target = "/metrics";
    request_.head.headers.Add("Host", name_);
    request_.fresh_connection = true;
  }

  // On the loop.
  void Begin(HttpClient& client, EventLoop& loop) { call_ = client.Start(loop, request_, *this); }

  void OnPhase(HttpPhase) override {}
  HttpBodySink OnHead(const HttpResponseHead& head) override {
    status_ = head.status;
    return HttpBodySink::Text(Scraper::kMaxPageBytes);
  }
  void OnDone(HttpResult result) override {
    result_ = std::move(result);
    call_ = nullptr;
    const std::shared_ptr<std::latch> done = done_;  // this may go as soon as it is counted
    done->count_down();
  }

  absl::StatusOr<std::vector<MetricSample>> Take() const {
    if (result_.error == HttpErrorKind::kTooLarge) {
      return absl::InvalidArgumentError(fmt::format("{}: the answer is larger than 8 MiB", name_));
    }
    if (result_.error != HttpErrorKind::kNone) {
      return absl::UnavailableError(fmt::format("{} does not answer: {}", name_, result_.detail));
    }
    if (status_ != 200) {
      return absl::InvalidArgumentError(
          fmt::format("{} answers with HTTP status {}, not with metrics", name_, status_));
    }
    absl::StatusOr<std::vector<MetricSample>> samples = ParseMetrics(result_.text);
    if (!samples.ok()) return Annotate(samples.status(), name_);
    return samples;
  }

 private:
  const std::shared_ptr<std::latch> done_;
  std::string name_;
  HttpRequest request_;
  std::shared_ptr<HttpCall> call_;
  int status_ = 0;
  HttpResult result_;
};

}  // namespace

Scraper::Scraper() : loops_(1), client_(loops_, ScrapeOptions()) {}

std::vector<absl::StatusOr<std::vector<MetricSample>>> Scraper::Read(const std::vector<MetricsAddress>& addresses) {
  const auto done = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(addresses.size()));
  std::vector<std::unique_ptr<PageCall>> calls;
  for (const MetricsAddress& address : addresses) {
    PageCall& call = *calls.emplace_back(std::make_unique<PageCall>(address, done));
    EventLoop& loop = loops_.Next();
    loop.Post([this, &call, &loop] { call.Begin(client_, loop); });
  }
  done->wait();
  std::vector<absl::StatusOr<std::vector<MetricSample>>> pages;
  pages.reserve(calls.size());
  for (const std::unique_ptr<PageCall>& call : calls) pages.push_back(call->Take());
  return pages;
}

}  // namespace millrace
