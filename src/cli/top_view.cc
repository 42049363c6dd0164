#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/size.h"
#include "cli/console.h"
#include "cli/json_text.h"

namespace millrace::cli {

namespace {

std::string ShownSize(double bytes) {
  return FormatSize(static_cast<uint64_t>(std::max(0.0, bytes)));
}

std::string ShownCount(double count) {
  return fmt::format("{:.{}f}", count, count >= 100 || count == 0 ? 0 : 1);
}

/// The shares of the causes of waiting, the largest first: "decode 61 %, first byte 3 %".
std::string ShownStalls(const std::map<std::string, double>& shares) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [cause, share] : shares) sorted.emplace_back(share, cause);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (auto& [share, cause] : sorted) {
    if (share < 0.005) continue;
    std::replace(cause.begin(), cause.end(), '_', ' ');
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", Printable(cause), 100 * share);
  }
  return text;
}

}  // namespace

TopProcess::TopProcess(std::string name, const TopPage& before, const TopPage& now) : name_(std::move(name)) {
  status_ = now.samples.status();
  if (!status_.ok()) return;
  now_ = *now.samples;
  // A process that did not answer before, or is another one now, has no rates yet.
  const bool same = before.samples.ok() && Sum(*before.samples, "process_start_time_seconds", {}) ==
                                               Sum(now_, "process_start_time_seconds", {});
  before_ = same ? *before.samples : now_;
  seconds_ = now.at - before.at;
  ReadLoaders();
}

double TopProcess::Sum(const std::vector<MetricSample>& samples, std::string_view name, const Labels& labels) {
  double sum = 0;
  for (const MetricSample& sample : samples) {
    if (sample.name != name) continue;
    const bool fits = std::all_of(labels.begin(), labels.end(), [&sample](const auto& label) {
      const auto found = sample.labels.find(label.first);
      return found != sample.labels.end() && found->second == label.second;
    });
    if (fits) sum += sample.value;
  }
  return sum;
}

bool TopProcess::Has(std::string_view name) const {
  return std::any_of(now_.begin(), now_.end(), [name](const MetricSample& sample) { return sample.name == name; });
}

double TopProcess::Rate(std::string_view name, const Labels& labels) const {
  if (seconds_ <= 0) return 0;
  return std::max(0.0, Now(name, labels) - Sum(before_, name, labels)) / seconds_;
}

std::vector<std::string> TopProcess::Values(std::string_view name, const std::string& label) const {
  std::set<std::string> values;
  for (const MetricSample& sample : now_) {
    const auto found = sample.labels.find(label);
    if (sample.name == name && found != sample.labels.end()) values.insert(found->second);
  }
  return {values.begin(), values.end()};
}

void TopProcess::ReadLoaders() {
  for (const std::string& data : Values("millrace_loader_open", "data")) {
    Loader loader;
    loader.data = data;
    loader.open = static_cast<uint64_t>(Now("millrace_loader_open", {{"data", data}}));
    loader.samples_per_second = Rate("millrace_loader_samples_total", {{"data", data}});
    loader.tokens_per_second = Rate("millrace_loader_tokens_total", {{"data", data}});
    const double each = static_cast<double>(std::max<uint64_t>(1, loader.open));
    for (const std::string& cause : Values("millrace_loader_stall_seconds_total", "cause")) {
      const double share =
          std::min(1.0, Rate("millrace_loader_stall_seconds_total", {{"data", data}, {"cause", cause}}) / each);
      if (share > 0) loader.stall_shares[cause] = share;
      loader.waited_share += share;
    }
    loader.waited_share = std::min(1.0, loader.waited_share);
    loader.quarantined = Now("millrace_loader_quarantined_samples_total", {{"data", data}});
    loader.hit_bytes_per_second = Rate("millrace_cache_hit_bytes_total", {{"data", data}});
    loader.miss_bytes_per_second = Rate("millrace_cache_miss_bytes_total", {{"data", data}});
    const std::vector<std::string> cached = Values("millrace_cache_hit_bytes_total", "data");
    loader.has_cache = std::find(cached.begin(), cached.end(), data) != cached.end();
    for (const std::string& worker : Values("millrace_service_rows_total", "worker")) {
      const Labels labels = {{"data", data}, {"worker", worker}};
      loader.worker_rows_per_second[worker] = Rate("millrace_service_rows_total", labels);
      loader.worker_failures[worker] = Now("millrace_service_failures_total", labels);
    }
    loaders_.push_back(std::move(loader));
  }
}

std::string TopProcess::LoaderText(const Loader& loader) const {
  std::string text = fmt::format("  {}: {} samples/s", Printable(loader.data), ShownCount(loader.samples_per_second));
  if (loader.tokens_per_second > 0) text += fmt::format(", {} tokens/s", ShownCount(loader.tokens_per_second));
  text += loader.open == 0 ? ", no loader now" : fmt::format(", waits {:.0f} % of the time", 100 * loader.waited_share);
  const std::string stalls = ShownStalls(loader.stall_shares);
  if (!stalls.empty()) text += ": " + stalls;
  if (loader.quarantined > 0) text += fmt::format("; {:.0f} damaged samples so far", loader.quarantined);
  text += '\n';
  if (loader.has_cache) {
    text += fmt::format("    cache: {}/s from it, {}/s from the store\n", ShownSize(loader.hit_bytes_per_second),
                        ShownSize(loader.miss_bytes_per_second));
  }
  for (const auto& [worker, rows] : loader.worker_rows_per_second) {
    text += fmt::format("    worker {}: {} rows/s, {:.0f} failures so far\n", Printable(worker), ShownCount(rows),
                        loader.worker_failures.at(worker));
  }
  return text;
}

std::string TopProcess::PartsText() const {
  std::string text;
  if (Has("millrace_store_requests_total")) {
    std::string requests;
    for (const std::string& method : Values("millrace_store_requests_total", "method")) {
      const double rate = Rate("millrace_store_requests_total", {{"method", method}});
      if (rate > 0) requests += fmt::format(", {} {}/s", Printable(method), ShownCount(rate));
    }
    text += fmt::format("  store: {}/s{}, {} retries/s\n", ShownSize(Rate("millrace_store_read_bytes_total")), requests,
                        ShownCount(Rate("millrace_store_retries_total")));
  }
  if (Has("millrace_worker_sessions")) {
    text += fmt::format("  worker: {:.0f} streams, {} rows/s, {}/s sent\n", Now("millrace_worker_sessions"),
                        ShownCount(Rate("millrace_worker_rows_sent_total")),
                        ShownSize(Rate("millrace_worker_sent_bytes_total")));
  }
  if (Has("millrace_run_command_running")) {
    text += fmt::format("  run: attempt {:.0f} of {:.0f}, {}\n", Now("millrace_run_attempts_total"),
                        Now("millrace_run_attempts_allowed"),
                        Now("millrace_run_command_running") > 0 ? "running" : "not running");
  }
  if (Has("millrace_devstore_answers_total")) {
    text += fmt::format("  devstore: {} answers/s\n", ShownCount(Rate("millrace_devstore_answers_total")));
  }
  return text;
}

std::string TopProcess::Text() const {
  if (!status_.ok()) return fmt::format("{}: {}\n", Printable(name_), Printable(ToStd(status_.message())));
  const std::vector<std::string> versions = Values("millrace_build_info", "version");
  std::string text = fmt::format("{}: {}, {:.2f} CPUs, {} of memory", Printable(name_),
                                 versions.empty() ? "not Millrace" : "millrace " + Printable(versions.front()),
                                 Rate("process_cpu_seconds_total"), ShownSize(Now("process_resident_memory_bytes")));
  if (Has("millrace_memory_budget_bytes")) {
    text += fmt::format(", budget {} of {}", ShownSize(Now("millrace_memory_reserved_bytes")),
                        ShownSize(Now("millrace_memory_budget_bytes")));
  }
  text += '\n';
  for (const Loader& loader : loaders_) text += LoaderText(loader);
  return text + PartsText();
}

std::string TopProcess::JsonText() const {
  JsonObject json{{"address", name_}};
  if (!status_.ok()) return json.Add("error", ToStd(status_.message())).Versioned("top");
  JsonArray loaders;
  for (const Loader& loader : loaders_) {
    JsonObject stalls;
    for (const auto& [cause, share] : loader.stall_shares) stalls.Add(cause, share);
    JsonObject workers;
    for (const auto& [worker, rows] : loader.worker_rows_per_second) workers.Add(worker, rows);
    loaders.Add(JSON_OF(loader.data, loader.open, loader.samples_per_second, loader.tokens_per_second,
                        loader.waited_share, Named("stall_shares", stalls), loader.quarantined,
                        Named("cache_hit_bytes_per_second", loader.hit_bytes_per_second),
                        Named("cache_miss_bytes_per_second", loader.miss_bytes_per_second),
                        Named("worker_rows_per_second", workers)));
  }
  json.Add("seconds", seconds_)
      .Add("cpus", Rate("process_cpu_seconds_total"))
      .Add("resident_bytes", Now("process_resident_memory_bytes"))
      .Add("loaders", loaders)
      .Add("store_bytes_per_second", Rate("millrace_store_read_bytes_total"))
      .Add("store_requests_per_second", Rate("millrace_store_requests_total"))
      .Add("store_retries_per_second", Rate("millrace_store_retries_total"));
  return json.Versioned("top");
}

}  // namespace millrace::cli
