#include "loader_report.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "errors.h"
#include "net/process_metrics.h"

namespace millrace::python {

namespace {

nb::object ToDict(const std::optional<CacheForecast>& forecast) {
  if (!forecast) return nb::none();
  nb::dict policies;
  for (const auto& [name, hits] :
       {std::pair("ours", &CacheForecast::Policies::ours), std::pair("lru", &CacheForecast::Policies::lru),
        std::pair("optimum", &CacheForecast::Policies::optimum)}) {
    nb::list shares;
    for (const CacheForecast::Epoch& epoch : forecast->epochs) {
      const auto bytes = static_cast<double>(std::max<uint64_t>(epoch.bytes, 1));
      shares.append(static_cast<double>(epoch.hits.*hits) / bytes);
    }
    policies[name] = shares;
  }
  return policies;
}

}  // namespace

nb::dict ToDict(const LoaderCounts& report, const std::optional<CacheForecast>& forecast, bool with_digest) {
  nb::dict stalls;
  for (size_t i = 0; i < kStallCauses; ++i) {
    stalls[ToPyText(StallCauseName(static_cast<StallCause>(i)))] = report.stalls.seconds[i];
  }
  nb::list quarantine;
  for (const QuarantinedSample& bad : report.quarantine) {
    nb::dict entry;
    entry["sample"] = ToPyText(bad.uri);
    entry["reason"] = ToPyText(bad.reason);
    entry["replacement"] = ToPyText(bad.replacement);
    entry["epoch"] = bad.epoch;
    quarantine.append(entry);
  }
  nb::dict result;
  result["samples"] = report.samples;
  result["tokens"] = report.tokens;
  result["token_places"] = report.token_places;
  result["digest"] = with_digest ? nb::object(ToPyText(report.digest.Hex())) : nb::none();
  result["position"] = report.position.ToString();
  result["parts"] = report.part_samples;
  result["seconds"] = report.stalls.elapsed;
  result["waited"] = report.stalls.waited();
  result["stalls"] = stalls;
  result["conversion_cpu_seconds"] = report.conversion_cpu_seconds;
  result["bottleneck"] = ToPyText(report.stalls.bottleneck());
  result["quarantined"] = report.quarantined;
  result["quarantine"] = quarantine;
  result["odd_images"] = report.odd_images;
  result["cache"] = nb::none();
  if (report.cache) {
    nb::dict cache;
    cache["hit_bytes"] = report.cache->hit_bytes;
    cache["miss_bytes"] = report.cache->miss_bytes;
    cache["requests"] = report.cache->requests;
    cache["written_bytes"] = report.cache->kept.written_bytes;
    cache["no_room_bytes"] = report.cache->kept.not_admitted_bytes;
    cache["dropped_bytes"] = report.cache->kept.dropped_bytes;
    cache["waiting_bytes"] = report.cache->kept.waiting_bytes;
    cache["memory_bytes"] = report.cache->memory_bytes;
    cache["forecast"] = ToDict(forecast);
    result["cache"] = cache;
  }
  nb::dict memory;
  memory["budget"] = report.memory.budget_bytes;
  memory["loaders"] = report.memory.loaders;
  memory["items"] = report.memory.item_bytes;
  memory["landing"] = report.memory.landing_bytes;
  memory["batches"] = report.memory.batch_bytes;
  memory["kept"] = report.memory.kept_bytes;
  memory["accounts"] = report.memory.account_bytes;
  memory["cache"] = report.cache ? report.cache->memory_bytes : 0;
  memory["process"] = ResidentBytes();
  result["memory"] = memory;
  nb::list workers;
  for (const WorkerReport& worker : report.workers) {
    nb::dict entry;
    entry["worker"] = ToPyText(worker.worker);
    entry["rows"] = worker.rows;
    entry["failures"] = worker.failures;
    entry["last_failure"] = ToPyText(worker.last_failure);
    workers.append(entry);
  }
  result["workers"] = workers;
  return result;
}

}  // namespace millrace::python
