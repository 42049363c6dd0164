#include "metrics/collectors.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/cpu_time.h"

namespace millrace {

namespace {

double ToNumber(uint64_t value) {
  return static_cast<double>(value);
}

/// Bytes in memory now; 0 if the system does not tell.
double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  file >> all >> resident;
  return file ? ToNumber(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
}

double OpenFiles() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return 0;
  int count = 0;
  while (readdir(folder.get()) != nullptr) ++count;
  return count - 3;  // without ".", ".." and the folder itself
}

/// Since 1970; 0 if the system does not tell.
double StartSeconds() {
  std::ifstream self("/proc/self/stat");
  std::string line;
  std::getline(self, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string skipped;
  constexpr int kBeforeStart = 19;  // the fields from the state to the one before the start
  for (int i = 0; i < kBeforeStart; ++i) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  std::ifstream machine("/proc/stat");
  for (std::string name; machine >> name;) {
    double boot = 0;
    if (name == "btime" && machine >> boot) return boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
    std::getline(machine, skipped);
  }
  return 0;
}

}  // namespace

Stores::Wrap StoreCounts::Watch() {
  return [this](std::unique_ptr<ObjectStore> below) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    Add(*below);
    return below;
  };
}

void StoreCounts::Add(const ObjectStore& store) {
  const std::lock_guard lock(mutex_);
  counters_.insert(&store.counters());
}

void StoreCounts::Collect(MetricsText* text) const {
  const std::lock_guard lock(mutex_);
  const auto request = [text](std::string_view method, uint64_t count) {
    text->Counter("millrace_store_requests_total", "Requests to stores, also those that were repeated.",
                  {{"method", method}}, ToNumber(count));
  };
  for (const RequestCounters* counters : counters_) {
    request("GET", counters->get);
    request("HEAD", counters->head);
    request("LIST", counters->list);
    request("PUT", counters->put);
    request("DELETE", counters->del);
    text->Counter("millrace_store_retries_total", "Attempts beyond the first, which are among the requests.", {},
                  ToNumber(counters->retries));
    text->Counter("millrace_store_hedges_total", "Second requests beside late ones, which are among the requests.", {},
                  ToNumber(counters->hedges));
    text->Counter("millrace_store_read_bytes_total", "Bytes of objects that were read from stores.", {},
                  ToNumber(counters->bytes_read));
  }
}

void CollectProcess(MetricsText* text) {
  text->Gauge("millrace_build_info", "The version of Millrace; always 1.", {{"version", MILLRACE_VERSION}}, 1);
  text->Counter("process_cpu_seconds_total", "CPU time of all threads, in user space and in the kernel.", {},
                CpuSeconds());
  text->Gauge("process_resident_memory_bytes", "Memory of the process.", {}, ResidentBytes());
  text->Gauge("process_open_fds", "Open files and connections.", {}, OpenFiles());
  text->Gauge("process_start_time_seconds", "When the process began, in seconds since 1970.", {}, StartSeconds());
}

void CollectMemory(const MemoryBudget& budget, MetricsText* text) {
  text->Gauge("millrace_memory_budget_bytes", "The bound on the buffers of all loaders together.", {},
              ToNumber(budget.limit()));
  text->Gauge("millrace_memory_reserved_bytes", "What is reserved of it.", {}, ToNumber(budget.used()));
}

void CollectCache(const CacheReport& cache, std::string_view data, MetricsText* text) {
  text->Counter("millrace_cache_hit_bytes_total", "Bytes that came from the cache, on a disk or in memory.",
                {{"data", data}}, ToNumber(cache.hit_bytes));
  text->Counter("millrace_cache_miss_bytes_total", "Bytes that the cache did not have, and the store was asked for.",
                {{"data", data}}, ToNumber(cache.miss_bytes));
  text->Counter("millrace_cache_store_requests_total", "Requests for what the cache did not have.", {{"data", data}},
                ToNumber(cache.requests));
}

void CollectLoaders(const LoaderTotals& totals, MetricsText* text) {
  for (const auto& [data, sum] : totals.Sums()) {
    const auto counter = [&, &data = data](const char* name, const char* help, double value) {
      text->Counter(name, help, {{"data", data}}, value);
    };
    text->Gauge("millrace_loader_open", "Loaders that there are now.", {{"data", data}}, ToNumber(sum.open));
    counter("millrace_loader_begun_total", "Loaders that were made.", ToNumber(sum.begun));
    counter("millrace_loader_samples_total", "Samples that were received, without padding and repeats.",
            ToNumber(sum.samples));
    counter("millrace_loader_tokens_total", "Tokens in these.", ToNumber(sum.tokens));
    counter("millrace_loader_token_places_total", "Tokens and padding in these.", ToNumber(sum.token_places));
    counter("millrace_loader_quarantined_samples_total", "Damaged samples that were replaced or masked.",
            ToNumber(sum.quarantined));
    counter("millrace_loader_seconds_total", "Time from the first to the last call of the consumer.", sum.seconds);
    for (size_t i = 0; i < kStallCauses; ++i) {
      text->Counter("millrace_loader_stall_seconds_total",
                    "Time that the consumer waited for a batch, by what its earliest sample was waiting for.",
                    {{"data", data}, {"cause", StallCauseName(static_cast<StallCause>(i))}}, sum.stall_seconds[i]);
    }
    if (sum.has_cache) CollectCache(sum.cache, data, text);
    for (const auto& [worker, done] : sum.workers) {
      text->Counter("millrace_service_rows_total", "Rows that a worker of the data service made, padding included.",
                    {{"data", data}, {"worker", worker}}, ToNumber(done.rows));
      text->Counter("millrace_service_failures_total", "How often one of its streams had to be opened elsewhere.",
                    {{"data", data}, {"worker", worker}}, ToNumber(done.failures));
    }
  }
}

void CollectWorker(const WorkerCounts& counts, MetricsText* text) {
  text->Gauge("millrace_worker_sessions", "Streams that trainers have open now.", {}, ToNumber(counts.open));
  text->Counter("millrace_worker_sessions_total", "Streams that were opened.", {}, ToNumber(counts.opened));
  text->Counter("millrace_worker_refused_total", "Streams that were refused: too many, or too little memory.", {},
                ToNumber(counts.refused));
  text->Counter("millrace_worker_batches_sent_total", "Parts of batches that were sent.", {}, ToNumber(counts.batches));
  text->Counter("millrace_worker_rows_sent_total", "Rows in these, padding included.", {}, ToNumber(counts.rows));
  text->Counter("millrace_worker_sent_bytes_total", "Bytes of these.", {}, ToNumber(counts.bytes));
  constexpr double kMillisecondsOfOne = 1000;
  text->Counter("millrace_worker_stream_seconds_total", "Time that streams were open, summed over them.", {},
                ToNumber(counts.open_ms) / kMillisecondsOfOne);
  text->Counter("millrace_worker_awaited_seconds_total",
                "Of the time that streams were open, that in which a trainer waited for a batch that was not ready.",
                {}, ToNumber(counts.awaited_ms) / kMillisecondsOfOne);
  CollectLoaders(counts.loaders, text);
}

}  // namespace millrace
