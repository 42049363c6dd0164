#include <algorithm>
#include <string>
#include <vector>

#include "cli/bench_report.h"
#include "cli/damaged_text.h"
#include "cli/json_text.h"

namespace millrace::cli {

namespace {

JsonObject SpreadJson(const Spread& spread) {
  return {{"median", spread.median}, {"least", spread.least}, {"most", spread.most}};
}

JsonObject TallyJson(const RequestCounts& tally) {
  return {{"GET", tally.get},
          {"HEAD", tally.head},
          {"LIST", tally.list},
          {"PUT", tally.put},
          {"retries", tally.retries},
          {"hedges", tally.hedges},
          {"bytes_read", tally.bytes_read}};
}

JsonObject PointJson(const BenchReport& report, const std::string& name, const BenchPoint& point) {
  const BenchSummary sum = Summarize(point);
  const RequestCounts epoch = EpochRequests(point);
  JsonObject stalls;
  for (size_t i = 0; i < kStallCauses; ++i) stalls.Add(StallCauseName(static_cast<StallCause>(i)), sum.stalls[i]);
  JsonArray windows;
  for (const BenchWindow& window : point.windows) {
    windows.Add(JsonObject{{"seconds", window.seconds},
                           {"samples", window.samples},
                           {"batches", window.batches},
                           {"cpu_seconds", window.cpu_seconds},
                           {"requests", TallyJson(window.requests)}});
  }
  JsonObject json{{"name", name},
                  {"threads", point.threads},
                  {"data_samples", point.samples},
                  {"data_objects", point.objects},
                  {"data_bytes", point.sample_bytes},
                  {"samples_per_second", SpreadJson(sum.samples_per_second)},
                  {"samples_per_second_per_vcpu", sum.samples_per_second.median / report.machine.cpus},
                  {"bytes_per_second", SpreadJson(sum.bytes_per_second)},
                  {"cpu_seconds_per_1000_samples", SpreadJson(sum.cpu_per_1000)},
                  {"busy_cpus", SpreadJson(sum.busy_cpus)},
                  {"other_busy_cpus", SpreadJson(sum.other_busy_cpus)},
                  {"gets_per_1000_samples", SpreadJson(sum.gets_per_1000)},
                  {"model_busy", SpreadJson(sum.model_busy)},
                  {"batch_p50_ms", SpreadJson(sum.batch_p50_ms)},
                  {"batch_p99_ms", SpreadJson(sum.batch_p99_ms)},
                  {"peak_rss_bytes", point.peak_rss_bytes},
                  {"seconds", sum.seconds},
                  {"stalls", stalls},
                  {"requests", TallyJson(sum.requests)},
                  {"epoch_requests", TallyJson(epoch)}};
  if (report.priced) json.Add("epoch_request_dollars", report.prices.DollarsOf(epoch));
  if (!report.machine.gpus.empty()) {
    json.Add("gpu_busy", SpreadJson(sum.gpu_busy)).Add("gpu_memory_bytes", sum.gpu_memory_bytes);
  }
  return json
      .Add("opening", JsonObject{{"seconds", point.opening.seconds}, {"requests", TallyJson(point.opening.requests)}})
      .Add("windows", windows);
}

JsonArray EpochsJson(const std::vector<EpochCost>& epochs) {
  JsonArray json;
  for (const EpochCost& epoch : epochs) {
    json.Add(JsonObject{{"seconds", epoch.seconds},
                        {"cpu_seconds", epoch.cpu_seconds},
                        {"samples", epoch.samples},
                        {"requests", TallyJson(epoch.requests)}});
  }
  return json;
}

JsonObject EpochJson(const EpochCost& epoch) {
  return {{"seconds", epoch.seconds},
          {"cpu_seconds", epoch.cpu_seconds},
          {"samples", epoch.samples},
          {"digest", epoch.digest.Hex()},
          {"requests", TallyJson(epoch.requests)}};
}

void AddResumeAndStorm(const BenchReport& report, JsonObject* scenarios) {
  if (report.resume) {
    const ResumePoint& resume = *report.resume;
    scenarios->Add(
        "f", JsonObject{{"position", resume.position.ToString()},
                        {"exact", resume.exact},
                        {"points", JsonArray{JsonObject{{"name", "from the start"},
                                                        {"first_batch_seconds", SpreadJson(resume.fresh_seconds)},
                                                        {"requests", TallyJson(resume.fresh_requests)}},
                                             JsonObject{{"name", "from the middle"},
                                                        {"first_batch_seconds", SpreadJson(resume.resumed_seconds)},
                                                        {"requests", TallyJson(resume.resumed_requests)}}}}});
  }
  if (report.storm) {
    const BenchReport::Storm& storm = *report.storm;
    scenarios->Add("g", JsonObject{{"faults", storm.faults},
                                   {"same_bytes", storm.same_bytes()},
                                   {"calm", EpochJson(storm.calm)},
                                   {"storm", EpochJson(storm.rough)}});
  }
}

JsonArray OrderRatiosJson(const BenchReport& report) {
  JsonArray json;
  for (const BenchReport::OrderRatio& ratio : report.order_ratios()) {
    json.Add(JsonObject{{"shuffle", ShuffleName(ratio.order)},
                        {"raw", ratio.raw},
                        {"threads", ratio.threads},
                        {"of_sequential", SpreadJson(ratio.rate)},
                        {"busy_cpus_sequential", ratio.busy_cpus},
                        {"waited_for_decoding", ratio.decode_share}});
  }
  return json;
}

JsonObject RivalJson(const RivalPoint& rival) {
  JsonObject json{{"name", rival.name}, {"workers", rival.workers}};
  if (!rival.uri.empty()) json.Add("uri", rival.uri);
  if (!rival.left_out.empty()) return json.Add("left_out", rival.left_out);
  JsonObject versions;
  for (const auto& [package, version] : rival.versions) versions.Add(package, version);
  return json.Add("samples_per_second", SpreadJson(rival.samples_per_second))
      .Add("cpu_seconds_per_1000_samples", SpreadJson(rival.cpu_per_1000))
      .Add("first_batch_seconds", rival.first_batch_seconds)
      .Add("checked_images", rival.pixels.samples)
      .Add("mean_pixel", rival.pixels.mean)
      .Add("versions", versions);
}

/// Others do not tell their requests; Millrace's two come first.
JsonArray ObjectEpochsJson(const std::vector<RivalEpochs>& epochs) {
  JsonArray json;
  for (const RivalEpochs& one : epochs) {
    const bool is_ours = &one - epochs.data() < 2;
    JsonObject object{{"name", one.name}, {"with_cache", one.kept}, {"workers", one.workers}};
    JsonArray costs;
    for (const EpochCost& epoch : one.epochs) {
      JsonObject cost{{"seconds", epoch.seconds}, {"cpu_seconds", epoch.cpu_seconds}, {"samples", epoch.samples}};
      if (is_ours) cost.Add("GET", epoch.requests.get);
      costs.Add(cost);
    }
    one.left_out.empty() ? object.Add("epochs", costs) : object.Add("left_out", one.left_out);
    json.Add(object);
  }
  return json;
}

JsonArray RivalsJson(const std::vector<RivalPoint>& rivals) {
  JsonArray json;
  for (const RivalPoint& rival : rivals) json.Add(RivalJson(rival));
  return json;
}

JsonObject ScenariosJson(const BenchReport& report) {
  JsonObject scenarios;
  if (!report.rate.empty()) {
    JsonArray points;
    for (const BenchPoint& point : report.rate) points.Add(PointJson(report, NameOf(point), point));
    scenarios.Add("d", JsonObject{{"points", points}});
  }
  if (!report.shards.empty()) {
    JsonArray points;
    for (const auto& point : report.shards) {
      points.Add(PointJson(report, NameOf(point), point.second).Add("shard_bytes", point.first));
    }
    JsonObject scenario{{"points", points}};
    JsonArray rivals;
    for (const auto& [bytes, rival] : report.shard_rivals) rivals.Add(RivalJson(rival).Add("shard_bytes", bytes));
    if (!report.shard_rivals.empty()) scenario.Add("rivals", rivals);
    scenarios.Add("c", scenario);
  }
  if (!report.orders.empty()) {
    JsonArray points;
    for (const auto& point : report.orders) {
      points.Add(
          PointJson(report, NameOf(point), point.point).Add("shuffle", ShuffleName(point.order)).Add("raw", point.raw));
    }
    JsonObject scenario{{"points", points}, {"order_ratios", OrderRatiosJson(report)}};
    if (!report.object_rivals.empty()) scenario.Add("rivals", RivalsJson(report.object_rivals));
    scenarios.Add("a", scenario);
  }
  if (!report.epochs.empty()) {
    JsonObject scenario{{"without_cache", EpochsJson(report.epochs)}, {"with_cache", EpochsJson(report.cached_epochs)}};
    if (!report.object_epochs.empty()) scenario.Add("raw_objects", ObjectEpochsJson(report.object_epochs));
    scenarios.Add("b", scenario);
  }
  if (!report.first_batch.empty()) {
    JsonArray points;
    for (const FirstBatchPoint& point : report.first_batch) {
      points.Add(JsonObject{{"name", NameOf(point)},
                            {"data_samples", point.samples},
                            {"data_objects", point.objects},
                            {"first_batch_seconds", SpreadJson(point.seconds)},
                            {"open_seconds", SpreadJson(point.open_seconds)},
                            {"requests", TallyJson(point.requests)}});
    }
    JsonArray downloads;
    for (const auto& [samples, seconds] : report.downloads) {
      downloads.Add(JsonObject{{"data_samples", samples}, {"seconds", SpreadJson(seconds)}});
    }
    scenarios.Add("e", JsonObject{{"points", points}, {"downloads", downloads}});
  }
  AddResumeAndStorm(report, &scenarios);
  return scenarios;
}

JsonObject ReportJson(const BenchReport& report) {
  const BenchSettings& settings = report.settings;
  JsonObject json{
      {"bench_format", 1},
      {"version", report.version},
      {"limit", report.limit().sentence},
      {"data", JsonObject{{"uri", report.uri}, {"description", report.data}, {"store", report.store}}},
      {"environment", JsonObject{{"date", report.machine.date},
                                 {"cpu", report.machine.cpu},
                                 {"vcpus", report.machine.cpus},
                                 {"memory_bytes", report.machine.memory_bytes},
                                 {"gpus", report.machine.gpus},
                                 {"kernel", report.machine.kernel},
                                 {"compiler", report.machine.compiler},
                                 {"millrace", report.version}}},
      {"settings", JsonObject{{"batch", settings.loader.batch},
                              {"size", settings.loader.image.width},
                              {"augment", settings.loader.image.augment},
                              {"shuffle", ShuffleName(settings.loader.shuffle)},
                              {"memory_bytes", settings.loader.memory_bytes},
                              {"io_threads", settings.io_threads},
                              {"step_ms", 1000 * settings.step_seconds},
                              {"warm_up_seconds", settings.warm_up_seconds},
                              {"window_seconds", settings.window_seconds},
                              {"repeats", settings.windows}}},
      {"prices", JsonObject{{"date", report.prices.date},
                            {"region", report.prices.region},
                            {"from", report.prices.from},
                            {"apply", report.priced}}},
      {"published", JsonObject{{"samples_per_second_per_vcpu", JsonArray{kPublishedRates[0], kPublishedRates[1]}},
                               {"source", kPublishedSource}}},
      {"scenarios", ScenariosJson(report)}};
  AddDamaged(report.damaged, &json);
  if (!report.rivals.empty()) json.Add("rivals", RivalsJson(report.rivals));
  return json;
}

/// Only the page shows these: sentences of the text, and the curve of the times of batches.
JsonObject PageJson(const BenchReport& report) {
  JsonArray ratios;
  for (const BenchReport::OrderRatio& ratio : report.order_ratios()) ratios.Add(TextOf(ratio));
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
                  {"order_ratios", ratios},
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

std::string BenchJson(const BenchReport& report) {
  return ReportJson(report).Line();
}

std::string BenchPageJson(const BenchReport& report) {
  return ReportJson(report).Add("page", PageJson(report)).Line();
}

}  // namespace millrace::cli
