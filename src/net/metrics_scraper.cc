#include "net/metrics_scraper.h"

#include <fmt/format.h>

#include <chrono>
#include <future>

#include "net/text_answer.h"

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

std::string NameOf(const MetricsAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", address.host, is_v6 ? "]" : "", address.port);
}

HttpRequest PageRequest(const MetricsAddress& address) {
  HttpRequest request{.endpoint = {.host = address.host, .port = address.port}, .head = {"GET", "/metrics", {}}};
  request.head.headers.Add("Host", NameOf(address));
  request.fresh_connection = true;  // a process that has ended and was started again answers on a new one
  return request;
}

absl::StatusOr<std::vector<MetricSample>> PageOf(const TextAnswer& answer, const std::string& name) {
  if (answer.result.error == HttpErrorKind::kTooLarge) {
    return absl::InvalidArgumentError(fmt::format("{}: the answer is larger than 8 MiB", name));
  }
  if (answer.result.error != HttpErrorKind::kNone) {
    return absl::UnavailableError(fmt::format("{} does not answer: {}", name, answer.result.detail));
  }
  if (answer.status != 200) {
    return absl::InvalidArgumentError(
        fmt::format("{} answers with HTTP status {}, not with metrics", name, answer.status));
  }
  absl::StatusOr<std::vector<MetricSample>> samples = ParseMetrics(answer.result.text);
  if (!samples.ok()) return Annotate(samples.status(), name);
  return samples;
}

}  // namespace

Scraper::Scraper() : loops_(1), client_(loops_, ScrapeOptions()) {}

std::vector<absl::StatusOr<std::vector<MetricSample>>> Scraper::Read(const std::vector<MetricsAddress>& addresses) {
  std::vector<std::future<TextAnswer>> answers;
  answers.reserve(addresses.size());
  for (const MetricsAddress& address : addresses) {
    answers.push_back(AskForText(client_, loops_.Next(), PageRequest(address), kMaxPageBytes));
  }
  std::vector<absl::StatusOr<std::vector<MetricSample>>> pages;
  pages.reserve(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) pages.push_back(PageOf(answers[i].get(), NameOf(addresses[i])));
  return pages;
}

}  // namespace millrace
