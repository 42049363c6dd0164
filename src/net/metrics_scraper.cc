#include "net/metrics_scraper.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <utility>

#include "net/text_answer.h"

namespace millrace {

namespace {

constexpr std::chrono::milliseconds kScrapeTimeout{2000};

HttpClientOptions ScrapeOptions() {
  HttpClientOptions options;
  options.max_connections = 2;
  options.connect_timeout = kScrapeTimeout;
  options.first_byte_timeout = kScrapeTimeout;
  options.stall_timeout = kScrapeTimeout;
  return options;
}

absl::StatusOr<std::vector<MetricSample>> PageOf(const TextAnswer& answer, const std::string& name) {
  if (answer.result.error == HttpErrorKind::kTooLarge) {
    return absl::InvalidArgumentError(fmt::format("{}: the answer is larger than 8 MiB", name));
  }
  if (answer.result.error != HttpErrorKind::kNone) {
    return absl::UnavailableError(fmt::format("{} does not answer: {}", name, answer.result.detail));
  }
  if (answer.head.status != 200) {
    return absl::InvalidArgumentError(
        fmt::format("{} answers with HTTP status {}, not with metrics", name, answer.head.status));
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
    TextRequest request{.endpoint = {.host = address.host, .port = address.port}, .head = {"GET", "/metrics", {}}};
    request.max_text = kMaxPageBytes;
    answers.push_back(AskForText(client_, loops_.Next(), std::move(request)));
  }
  std::vector<absl::StatusOr<std::vector<MetricSample>>> pages;
  pages.reserve(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i)
    pages.push_back(PageOf(answers[i].get(), HostAndPort(addresses[i].host, addresses[i].port)));
  return pages;
}

}  // namespace millrace
