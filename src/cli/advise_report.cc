#include "cli/advise_report.h"

#include <fmt/format.h>

#include "base/counted.h"
#include "base/size.h"
#include "cli/bench_report.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "diagnose/advise_answer.h"

namespace millrace::cli {

namespace {

std::string SizeText(double bytes) {
  return FormatSize(static_cast<uint64_t>(bytes));
}

/// "0.31 to 0.36"
std::string FromTo(const Spread& range) {
  return fmt::format("{:.3g} to {:.3g}", range.least, range.most);
}

std::string TriedText(const Advice& advice) {
  std::string text;
  if (const LoaderTrial& loader = advice.loader_trial; loader.tries > 0) {
    text += fmt::format("Tried: the loader {}, for {}: the first batch after {} s", Counted(loader.tries, "time"),
                        loader.whole ? "an epoch" : Counted(loader.samples, "sample"), FromTo(loader.startup_seconds));
    if (loader.samples_per_second.most > 0)
      text += fmt::format(", then {} samples/s", FromTo(loader.samples_per_second));
    text += '\n';
  }
  if (const CopyTrial& copy = advice.copy_trial; copy.bytes > 0) {
    text += fmt::format("Tried: a copy of {} to files {}: {}/s to {}/s\n",
                        copy.whole ? "everything" : Counted(copy.objects, "object"), Counted(copy.tries, "time"),
                        SizeText(copy.bytes_per_second.least), SizeText(copy.bytes_per_second.most));
  }
  return text;
}

/// Returns the ranges between the best and the worst trial; "" if there were no trials.
std::string RangesText(const Advice& advice) {
  std::string text;
  for (const CostPrediction& one : advice.predictions) {
    if (one.startup_range.most <= 0 && one.epoch_range.most <= 0) continue;
    text += fmt::format("  {}:", one.title);
    if (one.startup_range.most > 0) text += fmt::format(" start-up {} s", FromTo(one.startup_range));
    if (one.epoch_range.most > 0)
      text += fmt::format("{} epoch {} s", one.startup_range.most > 0 ? "," : "", FromTo(one.epoch_range));
    text += '\n';
  }
  return text.empty() ? text : "  By the best and the worst of the trials on this machine:\n" + text;
}

std::string FoundText(const Advice& advice) {
  const DataFacts& data = advice.data;
  const StoreFacts& store = advice.store;
  const auto objects = static_cast<double>(data.objects);
  std::string text = fmt::format("Data: {}: {} in {} ({}), {}; samples of {} (median) to {} (99 %), objects of {}\n",
                                 Printable(data.uri), Counted(data.samples, "sample"), Counted(data.objects, "object"),
                                 KindName(data.kind), FormatSize(data.object_bytes),
                                 FormatSize(data.median_sample_bytes), FormatSize(data.p99_sample_bytes),
                                 SizeText(objects > 0 ? static_cast<double>(data.object_bytes) / objects : 0));
  text += fmt::format("Compressibility: zstd leaves {:.0f} % of the bytes\n", 100 * data.compressed_share);
  text += fmt::format(
      "Store: first byte after {:.1f} ms, then {}/s; {} reads at a time {}/s, {} as the plan asks {}/s; listing {:.0f} "
      "objects/s\n",
      1000 * store.first_byte_seconds, SizeText(store.one_bytes_per_second), kDownloadsAtOnce,
      SizeText(store.download.bytes_per_second()), store.streams_at_once, SizeText(store.stream.bytes_per_second()),
      store.list.seconds > 0 ? static_cast<double>(store.list.objects) / store.list.seconds : 0);
  if (advice.no_cpu_reason.empty()) {
    text += fmt::format("CPU: {:.3f} s for 1,000 samples, by a run of the loader on this machine\n",
                        1000 * advice.inputs.cpu_seconds_per_sample);
  } else {
    text += fmt::format("CPU: left out, since the loader cannot be tried: {}\n", Printable(advice.no_cpu_reason));
  }
  text += TriedText(advice);
  if (advice.damaged.count() > 0)
    text += fmt::format("Damaged: {}\n", Printable(DamagedText(advice.damaged, data.uri)));
  return text;
}

std::string TableText(const Advice& advice, const AdviseSettings& settings) {
  constexpr const char* kRow = "  {:<24} {:>12} {:>12} {:>12} {:>14} {:>12} {:>12}\n";
  std::string text = '\n' + fmt::format(kRow, "", "start-up, s", "epoch, s", "later, s",
                                        fmt::format("{}, s", Counted(settings.epochs, "epoch")), "requests", "price");
  for (const CostPrediction& one : advice.predictions) {
    text += fmt::format(kRow, one.title, ShortNumber(one.startup_seconds), ShortNumber(one.epoch_seconds),
                        ShortNumber(one.later_epoch_seconds), ShortNumber(one.total_seconds(settings.epochs)),
                        one.requests, DollarText(one.dollars()));
  }
  if (const double model = ModelSeconds(advice.inputs); model > 0) {
    text += fmt::format("  Epochs include the model: {} for each, at {:.4g} ms a step.\n", TimeText(model),
                        1000 * advice.inputs.step_seconds);
  }
  if (advice.inputs.in_folder)
    text +=
        "  The data are in a folder of this machine: the answer compares no copies of them, and requests cost "
        "nothing.\n";
  text += "  FSx and EFS: a file system has to be created first, which takes minutes that are not counted.\n";
  return text + RangesText(advice);
}

std::string ArithmeticText(const Advice& advice) {
  std::string text;
  for (const CostPrediction& one : advice.predictions) {
    text += fmt::format("\nArithmetic of {}\n", one.title) + DerivationsText(one.lines);
  }
  return text;
}

Json RangeJson(const Spread& range) {
  return range.most > 0 ? Json(JsonArray{range.least, range.most}) : Json(nullptr);
}

Json FlowJson(const Advice& advice) {
  return JsonObject{{"source", DataSourceName(advice.choice.source)}, {"steps", advice.choice.steps}};
}

Json PredictionJson(const CostPrediction& one) {
  return JSON_OF(one.mode, one.startup_seconds, Named("startup_range", RangeJson(one.startup_range)), one.epoch_seconds,
                 Named("epoch_range", RangeJson(one.epoch_range)), one.later_epoch_seconds, one.requests,
                 one.request_dollars, one.machine_dollars, one.other_dollars, one.dollars(),
                 Named("arithmetic", DerivationsJson(one.lines)));
}

JsonObject RecommendationJson(const Recommendation& what) {
  return JSON_OF(what.mode, Named("source_without_millrace", what.source), what.format,
                 Named("shard_bytes", what.shard_bytes > 0 ? Json(what.shard_bytes) : Json(nullptr)), what.data_workers,
                 what.no_difference);
}

JsonObject StoreJson(const StoreFacts& store) {
  return JSON_OF(store.first_byte_seconds, store.one_bytes_per_second,
                 Named("download_bytes_per_second", store.download.bytes_per_second()),
                 Named("stream_bytes_per_second", store.stream.bytes_per_second()),
                 Named("listed_objects", store.list.objects),
                 Named("list_seconds_per_page", store.list.seconds_per_page()));
}

}  // namespace

std::string MachineDatesText(const std::vector<MachinePrice>& machines, const PriceList& prices) {
  std::string text;
  for (const MachinePrice& each : machines) {
    if (!each.date.empty() && each.date != prices.date) text += fmt::format("; {} of {}", each.name, each.date);
  }
  return text;
}

std::string DerivationsText(const std::vector<Derivation>& lines) {
  std::string text;
  for (const Derivation& line : lines) {
    const std::string value = line.unit == "$"
                                  ? DollarText(line.value)
                                  : fmt::format("{:.6g}{}{}", line.value, line.unit.empty() ? "" : " ", line.unit);
    text += fmt::format("  {} = {}\n  {:<26} = {} = {}\n", line.name, line.formula, "", line.numbers, value);
  }
  return text;
}

JsonArray DerivationsJson(const std::vector<Derivation>& lines) {
  return JsonOfEach(lines, [&](const Derivation& line) {
    return JSON_OF(line.name, line.formula, line.numbers, line.value, line.unit);
  });
}

std::string AdviceText(const Advice& advice, const AdviseSettings& settings) {
  const Recommendation what = RecommendedBy(advice);
  std::string text;
  for (const std::string& line : AnswerLines(advice, settings)) text += Printable(line) + '\n';
  text += '\n' + FoundText(advice) + TableText(advice, settings) + "\nAdvice\n";
  text += fmt::format(
      "  Mode {}, format {}{}; {} data workers for readers that wait for each file.\n", what.mode, what.format,
      what.shard_bytes > 0 ? fmt::format(", shards of {} MB", what.shard_bytes / 1'000'000) : "", what.data_workers);
  for (const std::string& sentence : advice.recommendations) text += fmt::format("  {}\n", Printable(sentence));
  text += fmt::format("\nDecision flow without Millrace: {}\n", DataSourceName(advice.choice.source));
  for (const std::string& step : advice.choice.steps) text += fmt::format("  {}\n", step);
  text += ArithmeticText(advice);
  text += fmt::format("\nPrices of {} ({}, {}){}. --prices FILE replaces them.\n", settings.prices.date,
                      settings.prices.region, settings.prices.from,
                      settings.machine ? MachineDatesText({*settings.machine}, settings.prices)
                                       : "; the price of this machine is not known: --machine names one");
  return text;
}

std::string AdviceJson(const Advice& advice, const AdviseSettings& settings) {
  const DataFacts& data = advice.data;
  JsonObject json{
      {"data", JSON_OF(data.uri, Named("kind", KindName(data.kind)), data.samples, data.objects, data.object_bytes,
                       data.index_bytes, data.median_sample_bytes, data.p99_sample_bytes, data.compressed_share)},
      {"store", StoreJson(advice.store)},
      {"cpu_seconds_per_sample",
       advice.no_cpu_reason.empty() ? Json(advice.inputs.cpu_seconds_per_sample) : Json(nullptr)},
      {"vcpus", advice.inputs.vcpus},
      {"epochs", settings.epochs},
      {"prices", JsonObject{{"date", settings.prices.date}, {"from", settings.prices.from}}},
      {"machine", settings.machine ? Json(settings.machine->name) : Json(nullptr)},
      {"machine_price_date", settings.machine ? Json(settings.machine->date) : Json(nullptr)},
      {"storage_dollars_per_month", StorageDollarsPerMonth(static_cast<double>(data.object_bytes), settings.prices)},
      {"plan", JsonObject{{"requests", advice.inputs.stream_requests}, {"bytes", advice.inputs.stream_bytes}}},
      {"predictions", JsonOfEach(advice.predictions, PredictionJson)},
      {"answer", AnswerLines(advice, settings)},
      {"recommendation", RecommendationJson(RecommendedBy(advice))},
      {"flow", FlowJson(advice)},
      {"advice", advice.recommendations}};
  AddDamaged(advice.damaged, &json);
  if (advice.accelerator) {
    json.Add("accelerators", JSON_OF(Named("count", advice.accelerator->accelerators),
                                     Named("vcpus_needed", advice.accelerator->need.needed),
                                     Named("vcpus_missing", advice.accelerator->need.missing),
                                     Named("most_busy", advice.accelerator->need.most_accelerator),
                                     advice.accelerator->step_seconds, advice.accelerator->dollars_per_100_steps));
  }
  return json.Versioned("advise");
}

}  // namespace millrace::cli
