#include "pipeline/loader_totals.h"

#include <algorithm>
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

void LoaderTotals::ProgramSum::Add(const ProgramWaits::Seconds& waits, const StallReport& loader) {
  const double waited = loader.waited() - counted_.waited();
  for (size_t i = 0; i < kStallCauses; ++i) {
    const double share = waited > 0 ? std::max(0.0, loader.seconds[i] - counted_.seconds[i]) / waited : 0;
    stall_seconds[i] += waits.data * share;
  }
  if (waited <= 0) stall_seconds[static_cast<size_t>(StallCause::kDecode)] += waits.data;
  work_seconds += waits.work;
  seconds += waits.elapsed;
  counted_ = loader;
}

std::unique_ptr<LoaderTotals::Entry> LoaderTotals::Count(std::string data, const BatchSource& source,
                                                         std::shared_ptr<ProgramWaits> program) {
  const std::lock_guard lock(mutex_);
  if (!ended_.contains(data) && ended_.size() >= kMaxNames) data = kOthers;
  ++ended_[data].begun;
  auto entry = std::make_unique<Entry>(*this, std::move(data), source);
  open_.emplace(entry.get(), Open{.source = &source, .program = std::move(program)});
  return entry;
}

void LoaderTotals::AddOpen(const Open& open, Sum* sum) {
  LoaderReport report = open.source->report();
  if (open.program == nullptr) return sum->Add(report);
  report.stalls.seconds = open.program_sum.stall_seconds;
  report.stalls.elapsed = open.program_sum.seconds;
  sum->Add(report);
  sum->work_seconds[open.program->work()] += open.program_sum.work_seconds;
}

void LoaderTotals::End(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  Open open = std::move(open_.extract(&entry).mapped());
  const auto now = std::chrono::steady_clock::now();
  if (open.program != nullptr) open.program_sum.Add(open.program->Finish(now), open.source->report().stalls);
  AddOpen(open, &ended_[entry.name_]);
}

std::map<std::string, LoaderTotals::Sum> LoaderTotals::Sums() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Sum> sums = ended_;
  const auto now = std::chrono::steady_clock::now();
  for (auto& [entry, open] : open_) {
    Sum& sum = sums[entry->name_];
    ++sum.open;
    if (open.program != nullptr) open.program_sum.Add(open.program->Take(now), open.source->report().stalls);
    AddOpen(open, &sum);
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
    const auto stall = [&, &data = data](std::string_view cause, double seconds) {
      text->Counter("millrace_loader_stall_seconds_total",
                    "Time that the consumer waited for a batch, by what its earliest sample was waiting for.",
                    {{"data", data}, {"cause", cause}}, seconds);
    };
    for (size_t i = 0; i < kStallCauses; ++i) stall(StallCauseName(static_cast<StallCause>(i)), sum.stall_seconds[i]);
    for (const auto& [work, seconds] : sum.work_seconds) stall(work, seconds);
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
