#include <algorithm>
#include <string>
#include <vector>

#include "cli/bench_report.h"

namespace millrace {

// Json finds these two by the namespace of what it gets.
static cli::JsonObject JsonOf(const Spread& spread) {
  return JSON_OF(spread.median, spread.least, spread.most);
}

static cli::JsonObject JsonOf(const RequestCounts& tally) {
  return JSON_OF(cli::Named("GET", tally.get), cli::Named("HEAD", tally.head), cli::Named("LIST", tally.list),
                 cli::Named("PUT", tally.put), tally.retries, tally.hedges, tally.bytes_read);
}

}  // namespace millrace

namespace millrace::cli {

namespace {

JsonObject PointJson(const BenchReport& report, const std::string& name, const BenchPoint& point) {
  const BenchSummary sum = Summarize(point);
  const RequestCounts epoch = EpochRequests(point);
  JsonObject stalls;
  for (size_t i = 0; i < kStallCauses; ++i) stalls.Add(StallCauseName(static_cast<StallCause>(i)), sum.stalls[i]);
  JsonObject json = JSON_OF(
      name, point.threads, Named("data_samples", point.samples), Named("data_objects", point.objects),
      Named("data_bytes", point.sample_bytes), sum.samples_per_second,
      Named("samples_per_second_per_vcpu", sum.samples_per_second.median / report.machine.cpus), sum.bytes_per_second,
      Named("cpu_seconds_per_1000_samples", sum.cpu_per_1000), sum.busy_cpus, sum.other_busy_cpus,
      Named("gets_per_1000_samples", sum.gets_per_1000), sum.model_busy, sum.batch_p50_ms, sum.batch_p99_ms,
      point.peak_rss_bytes, sum.seconds, stalls, sum.requests, Named("epoch_requests", epoch));
  if (report.priced) json.Add("epoch_request_dollars", report.prices.DollarsOf(epoch));
  if (!report.machine.gpus.empty()) {
    json.Add("gpu_busy", sum.gpu_busy).Add("gpu_memory_bytes", sum.gpu_memory_bytes);
  }
  return json.Add("opening", JSON_OF(point.opening.seconds, point.opening.requests))
      .Add("windows", JsonOfEach(point.windows, [](const BenchWindow& window) {
             return JSON_OF(window.seconds, window.samples, window.batches, window.cpu_seconds, window.requests);
           }));
}

JsonObject EpochJson(const EpochCost& epoch) {
  return {{"seconds", epoch.seconds}, {"cpu_seconds", epoch.cpu_seconds}, {"samples", epoch.samples}};
}

JsonObject RequestsOfEpoch(const EpochCost& epoch) {
  return EpochJson(epoch).Add("requests", epoch.requests);
}

JsonObject StormEpoch(const EpochCost& epoch) {
  return EpochJson(epoch).Add("digest", epoch.digest.Hex()).Add("requests", epoch.requests);
}

JsonObject ResumeJson(const ResumePoint& resume) {
  const auto from = [](const char* name, const Spread& seconds, const RequestCounts& requests) {
    return JsonObject{{"name", name}, {"first_batch_seconds", seconds}, {"requests", requests}};
  };
  return {{"position", resume.position.ToString()},
          {"exact", resume.exact},
          {"points", JsonArray{from("from the start", resume.fresh_seconds, resume.fresh_requests),
                               from("from the middle", resume.resumed_seconds, resume.resumed_requests)}}};
}

JsonObject OrderRatioJson(const BenchReport::OrderRatio& ratio) {
  return JSON_OF(Named("shuffle", ShuffleName(ratio.order)), ratio.raw, ratio.threads,
                 Named("of_sequential", ratio.rate), Named("busy_cpus_sequential", ratio.busy_cpus),
                 Named("waited_for_decoding", ratio.decode_share));
}

JsonObject RivalJson(const RivalPoint& rival) {
  JsonObject json{{"name", rival.name}, {"workers", rival.workers}};
  if (!rival.uri.empty()) json.Add("uri", rival.uri);
  if (!rival.left_out.empty()) return json.Add("left_out", rival.left_out);
  JsonObject versions;
  for (const auto& [package, version] : rival.versions) versions.Add(package, version);
  return json.Add("samples_per_second", rival.samples_per_second)
      .Add("cpu_seconds_per_1000_samples", rival.cpu_per_1000)
      .Add("first_batch_seconds", rival.first_batch_seconds)
      .Add("checked_images", rival.pixels.samples)
      .Add("mean_pixel", rival.pixels.mean)
      .Add("versions", versions);
}

/// Others do not tell their requests; Millrace's two come first.
JsonObject ObjectEpochsJson(const RivalEpochs& one, bool is_ours) {
  JsonObject json{{"name", one.name}, {"with_cache", one.kept}, {"workers", one.workers}};
  if (!one.left_out.empty()) return json.Add("left_out", one.left_out);
  return json.Add("epochs", JsonOfEach(one.epochs, [&](const EpochCost& epoch) {
                    JsonObject cost = EpochJson(epoch);
                    return is_ours ? cost.Add("GET", epoch.requests.get) : cost;
                  }));
}

JsonObject FirstBatchJson(const BenchReport& report) {
  const auto point = [](const FirstBatchPoint& one) {
    return JsonObject{{"name", NameOf(one)},
                      {"data_samples", one.samples},
                      {"data_objects", one.objects},
                      {"first_batch_seconds", one.seconds},
                      {"open_seconds", one.open_seconds},
                      {"requests", one.requests}};
  };
  const auto download = [](const auto& one) {
    return JsonObject{{"data_samples", one.first}, {"seconds", one.second}};
  };
  return {{"points", JsonOfEach(report.first_batch, point)}, {"downloads", JsonOfEach(report.downloads, download)}};
}

JsonObject ScenariosJson(const BenchReport& report) {
  JsonObject scenarios;
  const auto point_of = [&](const auto& named, const BenchPoint& point) {
    return PointJson(report, NameOf(named), point);
  };
  if (!report.rate.empty()) {
    const auto points = JsonOfEach(report.rate, [&](const BenchPoint& point) { return point_of(point, point); });
    scenarios.Add("d", JsonObject{{"points", points}});
  }
  if (!report.shards.empty()) {
    JsonObject scenario{{"points", JsonOfEach(report.shards, [&](const auto& point) {
                           return point_of(point, point.second).Add("shard_bytes", point.first);
                         })}};
    if (!report.shard_rivals.empty()) {
      scenario.Add("rivals", JsonOfEach(report.shard_rivals, [](const auto& rival) {
                     return RivalJson(rival.second).Add("shard_bytes", rival.first);
                   }));
    }
    scenarios.Add("c", scenario);
  }
  if (!report.orders.empty()) {
    JsonObject scenario{{"points", JsonOfEach(report.orders, [&](const BenchReport::OrderPoint& one) {
                           return point_of(one, one.point).Add("shuffle", ShuffleName(one.order)).Add("raw", one.raw);
                         })}};
    scenario.Add("order_ratios", JsonOfEach(report.order_ratios(), OrderRatioJson));
    if (!report.object_rivals.empty()) scenario.Add("rivals", JsonOfEach(report.object_rivals, RivalJson));
    scenarios.Add("a", scenario);
  }
  if (!report.epochs.empty()) {
    JsonObject scenario{{"without_cache", JsonOfEach(report.epochs, RequestsOfEpoch)},
                        {"with_cache", JsonOfEach(report.cached_epochs, RequestsOfEpoch)}};
    if (!report.object_epochs.empty()) {
      scenario.Add("raw_objects", JsonOfEach(report.object_epochs, [&](const RivalEpochs& one) {
                     return ObjectEpochsJson(one, &one - report.object_epochs.data() < 2);
                   }));
    }
    scenarios.Add("b", scenario);
  }
  if (!report.first_batch.empty()) scenarios.Add("e", FirstBatchJson(report));
  if (report.resume) scenarios.Add("f", ResumeJson(*report.resume));
  if (report.storm) {
    scenarios.Add(
        "g", JSON_OF(report.storm->faults, report.storm->same_bytes(), Named("calm", StormEpoch(report.storm->calm)),
                     Named("storm", StormEpoch(report.storm->rough))));
  }
  return scenarios;
}

JsonObject ReportJson(const BenchReport& report) {
  const BenchSettings& settings = report.settings;
  JsonObject json{
      {"bench_format", 1},
      {"version", report.version},
      {"limit", report.limit().sentence},
      {"data", JsonObject{{"uri", report.uri}, {"description", report.data}, {"store", report.store}}},
      {"environment", JSON_OF(report.machine.date, report.machine.cpu, Named("vcpus", report.machine.cpus),
                              report.machine.memory_bytes, report.machine.gpus, report.machine.kernel,
                              report.machine.compiler, Named("millrace", report.version))},
      {"settings",
       JSON_OF(settings.loader.batch, Named("size", settings.loader.image.width), settings.loader.image.augment,
               Named("shuffle", ShuffleName(settings.loader.shuffle)), settings.loader.memory_bytes,
               settings.io_threads, Named("step_ms", 1000 * settings.step_seconds), settings.warm_up_seconds,
               settings.window_seconds, Named("repeats", settings.windows))},
      {"prices", JSON_OF(report.prices.date, report.prices.region, report.prices.from, Named("apply", report.priced))},
      {"published", JsonObject{{"samples_per_second_per_vcpu", JsonArray{kPublishedRates[0], kPublishedRates[1]}},
                               {"source", kPublishedSource}}},
      {"scenarios", ScenariosJson(report)}};
  AddDamaged(report.damaged, &json);
  if (!report.rivals.empty()) json.Add("rivals", JsonOfEach(report.rivals, RivalJson));
  return json;
}

/// Only the page shows these: sentences of the text, and the curve of the times of batches.
JsonObject PageJson(const BenchReport& report) {
  const BenchPoint* const best = report.best();
  std::vector<double> times;
  if (best != nullptr) {
    for (const BenchWindow& window : best->windows)
      times.insert(times.end(), window.batch_ms.begin(), window.batch_ms.end());
  }
  std::sort(times.begin(), times.end());
  JsonArray percentiles;
  for (int percent = 0; percent <= 100; ++percent) percentiles.Add(QuantileOf(times, percent / 100.0));
  const auto price = [&](const RequestCounts& requests) { return DollarText(report.prices.DollarsOf(requests)); };
  JsonObject page{{"beside", BesideText(report)},
                  {"order_ratios", JsonOfEach(report.order_ratios(), TextOf)},
                  {"orders_note", report.orders_note()},
                  {"batches", times.size()},
                  {"batch_ms_percentiles", percentiles},
                  {"damaged", report.damaged.count() > 0 ? DamagedText(report.damaged, report.uri) : ""}};
  if (report.beside_rivals) page.Add("own_first_batch_seconds", report.beside_rivals->seconds.median);
  if (best == nullptr) return page;
  return page.Add("gpus", report.machine.gpus.empty() ? "" : GpuText(report, Summarize(*best)))
      .Add("opening_price", price(best->opening.requests))
      .Add("epoch_price", price(EpochRequests(*best)));
}

}  // namespace

void AddDamaged(const DamagedSamples& damaged, JsonObject* json) {
  json->Add("bad_samples", uint64_t{damaged.count()});
  const std::optional<QuarantinedSample>& first = damaged.first();
  json->Add("first_bad_sample", first ? Json(JSON_OF(Named("sample", first->uri), first->reason)) : Json(nullptr));
}

std::string BenchJson(const BenchReport& report) {
  return ReportJson(report).Versioned("bench");
}

std::string BenchPageJson(const BenchReport& report) {
  return ReportJson(report).Add("page", PageJson(report)).Versioned("bench");
}

}  // namespace millrace::cli
