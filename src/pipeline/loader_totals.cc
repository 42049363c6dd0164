#include "pipeline/loader_totals.h"

#include <utility>

#include "net/metrics_text.h"

namespace millrace {

void LoaderTotals::Sum::Add(const LoaderReport& report) {
  samples += report.samples;
  tokens += report.tokens;
  token_places += report.token_places;
  quarantined += report.quarantined;
  seconds += report.stalls.elapsed;
  for (size_t i = 0; i < kStallCauses; ++i) stall_seconds[i] += report.stalls.seconds[i];
  if (report.cache) {
    has_cache = true;
    cache.hit_bytes += report.cache->hit_bytes;
    cache.miss_bytes += report.cache->miss_bytes;
    cache.requests += report.cache->requests;
  }
  for (const WorkerReport& worker : report.workers) {
    WorkerSum& sum = workers[worker.worker];
    sum.rows += worker.rows;
    sum.failures += worker.failures;
  }
}

std::unique_ptr<LoaderTotals::Entry> LoaderTotals::Count(std::string data, const BatchSource& source) {
  const std::lock_guard lock(mutex_);
  if (!ended_.contains(data) && ended_.size() >= kMaxNames) data = kOthers;
  ++ended_[data].begun;
  auto entry = std::make_unique<Entry>(*this, std::move(data), source);
  open_.emplace(entry.get(), &source);
  return entry;
}

void LoaderTotals::End(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  open_.erase(&entry);
  ended_[entry.name_].Add(entry.source_.report());
}

std::map<std::string, LoaderTotals::Sum> LoaderTotals::Sums() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Sum> sums = ended_;
  for (const auto& [entry, source] : open_) {
    Sum& sum = sums[entry->name_];
    ++sum.open;
    sum.Add(source->report());
  }
  return sums;
}

void CollectLoaders(const LoaderTotals& totals, MetricsText* text) {
  for (const auto& [data, sum] : totals.Sums()) {
    const auto counter = [&, &data = data](const char* name, const char* help, double value) {
      text->Counter(name, help, {{"data", data}}, value);
    };
    text->Gauge("millrace_loader_open", "Loaders that read now.", {{"data", data}}, static_cast<double>(sum.open));
    counter("millrace_loader_begun_total", "How often a loader began to read.", static_cast<double>(sum.begun));
    counter("millrace_loader_samples_total", "Samples that were received, without padding and repeats.",
            static_cast<double>(sum.samples));
    counter("millrace_loader_tokens_total", "Tokens in these.", static_cast<double>(sum.tokens));
    counter("millrace_loader_token_places_total", "Tokens and padding in these.",
            static_cast<double>(sum.token_places));
    counter("millrace_loader_quarantined_samples_total", "Damaged samples that were replaced or masked.",
            static_cast<double>(sum.quarantined));
    counter("millrace_loader_seconds_total", "Time from the first to the last call of the consumer.", sum.seconds);
    for (size_t i = 0; i < kStallCauses; ++i) {
      text->Counter("millrace_loader_stall_seconds_total",
                    "Time that the consumer waited for a batch, by what its earliest sample was waiting for.",
                    {{"data", data}, {"cause", StallCauseName(static_cast<StallCause>(i))}}, sum.stall_seconds[i]);
    }
    if (sum.has_cache) CollectCache(sum.cache, data, text);
    for (const auto& [worker, done] : sum.workers) {
      text->Counter("millrace_service_rows_total", "Rows that a worker of the data service made, padding included.",
                    {{"data", data}, {"worker", worker}}, static_cast<double>(done.rows));
      text->Counter("millrace_service_failures_total", "How often one of its streams had to be opened elsewhere.",
                    {{"data", data}, {"worker", worker}}, static_cast<double>(done.failures));
    }
  }
}

}  // namespace millrace
