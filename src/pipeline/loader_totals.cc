#include "pipeline/loader_totals.h"

#include <utility>

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

}  // namespace millrace
