#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/counted.h"
#include "base/size.h"

namespace millrace::cli {

namespace {

std::string RangeText(const Spread& spread) {
  return fmt::format("{} ({}-{})", ShortNumber(spread.median), ShortNumber(spread.least), ShortNumber(spread.most));
}

std::string RateRow(const std::string& name, const BenchPoint& point, int cpus) {
  const BenchSummary sum = Summarize(point);
  std::string text =
      fmt::format("  {:<16} {:>24} {:>9} {:>8} {:>11} {:>9} {:>9} {:>10}\n", name, RangeText(sum.samples_per_second),
                  ShortNumber(sum.samples_per_second.median / cpus), ShortNumber(sum.bytes_per_second.median / 1e6),
                  ShortNumber(sum.cpu_per_1000.median), ShortNumber(sum.batch_p50_ms.median),
                  ShortNumber(sum.batch_p99_ms.median), FormatSize(point.peak_rss_bytes));
  if (sum.model_busy.median > 0) {
    text += fmt::format("  {:<16} the model was busy {:.1f} % of the time\n", "", 100 * sum.model_busy.median);
  }
  return text;
}

std::string RateHead(const char* first) {
  return fmt::format("  {:<16} {:>24} {:>9} {:>8} {:>11} {:>9} {:>9} {:>10}\n", first, "samples/s (least-most)",
                     "per vCPU", "MB/s", "CPU-s/1000", "p50 ms", "p99 ms", "peak RSS");
}

std::string StallsText(const BenchSummary& sum) {
  const double waited = std::accumulate(sum.stalls.begin(), sum.stalls.end(), 0.0);
  std::string text = fmt::format("  Waited {:.1f} of {:.1f} s:", waited, sum.seconds);
  for (size_t i = 0; i < kStallCauses; ++i) {
    if (sum.stalls[i] < 0.0005) continue;
    text += fmt::format(" {} {:.2f} s", StallCauseName(static_cast<StallCause>(i)), sum.stalls[i]);
  }
  return text + fmt::format(
                    "\n  A CPU that is busy all the time makes {} samples/s here; {:.2f} CPUs were busy with other "
                    "programs.\n",
                    ShortNumber(CpuRate(sum)), sum.other_busy_cpus.median);
}

std::string RequestsText(const BenchReport& report, const BenchPoint& point) {
  const RequestCounts epoch = EpochRequests(point);
  std::string text = fmt::format("  An epoch of {}: {}, {} from the store", Counted(point.samples, "sample"),
                                 Counted(epoch.get, "GET"), FormatSize(epoch.bytes_read));
  if (report.priced) {
    text += fmt::format(", {} (prices of {}, {})", DollarText(report.prices.DollarsOf(epoch)), report.prices.date,
                        report.prices.from);
  }
  const RequestCounts& opening = point.opening.requests;
  text += fmt::format("\n  Opening the data set: {:.2f} s, {} GET, {} LIST, {} HEAD\n", point.opening.seconds,
                      opening.get, opening.list, opening.head);
  return text;
}

std::string EpochsText(const BenchReport& report) {
  std::string text =
      fmt::format("\nEpochs with and without a cache on the local disk (b)\n  {:<16} {:>10} {:>10} {:>10}\n", "", "s",
                  "CPU-s", "GETs");
  for (const auto& [name, epochs] : {std::pair{"without", &report.epochs}, std::pair{"with", &report.cached_epochs}}) {
    for (size_t i = 0; i < epochs->size(); ++i) {
      const EpochCost& epoch = (*epochs)[i];
      text += fmt::format("  {:<16} {:>10} {:>10} {:>10}\n", fmt::format("epoch {} {}", i + 1, name),
                          ShortNumber(epoch.seconds), ShortNumber(epoch.cpu_seconds), epoch.requests.get);
    }
  }
  return text;
}

std::string ObjectEpochsText(const BenchReport& report) {
  if (report.object_epochs.empty()) return "";
  std::string text = "\nSeconds of each epoch over raw objects at random (b), without and with a cache\n";
  for (const RivalEpochs& one : report.object_epochs) {
    text += fmt::format("  {:<36}", NameOf(one));
    for (const EpochCost& epoch : one.epochs) text += fmt::format(" {:>8}", ShortNumber(epoch.seconds));
    text += one.left_out.empty() ? "\n" : fmt::format(" left out: {}\n", one.left_out);
  }
  return text;
}

std::string ResumeText(const ResumePoint& resume) {
  std::string text =
      fmt::format("\nResuming in the middle of an epoch (f)\n  {:<16} {:>24}  requests\n", "", "s (least-most)");
  const auto row = [&](const char* name, const Spread& seconds, const RequestCounts& requests) {
    text += fmt::format("  {:<16} {:>24}  {} GET, {} LIST, {} HEAD, {}\n", name, RangeText(seconds), requests.get,
                        requests.list, requests.head, FormatSize(requests.bytes_read));
  };
  row("from the start", resume.fresh_seconds, resume.fresh_requests);
  row("from the middle", resume.resumed_seconds, resume.resumed_requests);
  return text + fmt::format("  The samples after the interruption were {}those that would have come without it.\n",
                            resume.exact ? "" : "NOT ");
}

std::string StormText(const BenchReport::Storm& storm) {
  std::string text = fmt::format("\nAn epoch while the store fails (g)\n  {:<16} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
                                 "", "s", "CPU-s", "GETs", "retries", "hedges");
  for (const auto& [name, cost] : {std::pair{"calm", &storm.calm}, std::pair{"storm", &storm.rough}}) {
    text +=
        fmt::format("  {:<16} {:>10} {:>10} {:>10} {:>10} {:>10}\n", name, ShortNumber(cost->seconds),
                    ShortNumber(cost->cpu_seconds), cost->requests.get, cost->requests.retries, cost->requests.hedges);
  }
  return text + fmt::format("  All {} came, and {}.\n", Counted(storm.rough.samples, "sample"),
                            storm.same_bytes() ? "every byte was right" : "they were NOT the same bytes");
}

double RateOf(const BenchWindow& window) {
  return window.seconds > 0 ? static_cast<double>(window.samples) / window.seconds : 0;
}

// Millrace comes first.
std::string RivalsText(const BenchReport& report) {
  const BenchSummary ours = Summarize(*report.best());
  std::string text = fmt::format("\nOther loaders over the same data (--rival)\n  {:<28} {:>24} {:>9} {:>11} {:>14}\n",
                                 "", "samples/s (least-most)", "of ours", "CPU-s/1000", "first batch, s");
  const auto row = [&](const std::string& name, const Spread& rate, const Spread& cpu, double first_batch) {
    const double share = ours.samples_per_second.median > 0 ? rate.median / ours.samples_per_second.median : 0;
    text += fmt::format("  {:<28} {:>24} {:>9.2f} {:>11} {:>14}\n", name, RangeText(rate), share,
                        ShortNumber(cpu.median), ShortNumber(first_batch));
  };
  row("millrace", ours.samples_per_second, ours.cpu_per_1000, report.beside_rivals->seconds.median);
  for (const RivalPoint& rival : report.rivals) {
    if (rival.left_out.empty()) {
      row(NameOf(rival), rival.samples_per_second, rival.cpu_per_1000, rival.first_batch_seconds);
    } else {
      text += fmt::format("  {:<28} left out: {}\n", NameOf(rival), rival.left_out);
    }
  }
  return text;
}

/// Represents the rivals of a scenario, each with the rate of Millrace that it stands beside.
struct RivalOfCurve {
  std::string name;
  const RivalPoint* rival = nullptr;
  double ours = 0;
};
std::string RivalCurveText(const char* title, const std::vector<RivalOfCurve>& curve) {
  if (curve.empty()) return "";
  std::string text =
      fmt::format("\n{}\n  {:<36} {:>24} {:>9} {:>11}\n", title, "", "samples/s (least-most)", "of ours", "CPU-s/1000");
  for (const RivalOfCurve& one : curve) {
    if (!one.rival->left_out.empty()) {
      text += fmt::format("  {:<36} left out: {}\n", one.name, one.rival->left_out);
      continue;
    }
    const Spread& rate = one.rival->samples_per_second;
    text += fmt::format("  {:<36} {:>24} {:>9.2f} {:>11}\n", one.name, RangeText(rate),
                        one.ours > 0 ? rate.median / one.ours : 0, ShortNumber(one.rival->cpu_per_1000.median));
  }
  return text;
}

std::string ObjectRivalsText(const BenchReport& report) {
  std::vector<RivalOfCurve> curve;
  for (const RivalPoint& rival : report.object_rivals) {
    curve.push_back({NameOf(rival), &rival, Summarize(*report.best_of_objects()).samples_per_second.median});
  }
  return RivalCurveText("Other loaders over the same raw objects at random (a), by their workers", curve);
}

std::string ShardRivalsText(const BenchReport& report) {
  std::vector<RivalOfCurve> curve;
  for (const auto& rival : report.shard_rivals) {
    for (const auto& [bytes, point] : report.shards) {
      if (bytes != rival.first) continue;
      curve.push_back({NameOf(rival), &rival.second, Summarize(point).samples_per_second.median});
    }
  }
  return RivalCurveText("Other loaders over the same shards (c), by the size of a shard", curve);
}

}  // namespace

const BenchPoint* BenchReport::best_of_objects() const {
  const BenchPoint* best = nullptr;
  double most = -1;
  for (const OrderPoint& order : orders) {
    const double rate = order.raw ? Summarize(order.point).samples_per_second.median : -1;
    if (rate <= most) continue;
    most = rate;
    best = &order.point;
  }
  return best;
}

const BenchPoint* BenchReport::best() const {
  const BenchPoint* best = nullptr;
  double most = -1;
  const auto consider = [&](const BenchPoint& point) {
    const double here = Summarize(point).samples_per_second.median;
    if (here > most) {
      most = here;
      best = &point;
    }
  };
  for (const BenchPoint& point : rate) consider(point);
  if (best == nullptr) {
    for (const OrderPoint& order : orders) consider(order.point);
  }
  if (best == nullptr) {
    for (const auto& [bytes, point] : shards) consider(point);
  }
  return best;
}

std::vector<BenchReport::OrderRatio> BenchReport::order_ratios() const {
  std::vector<OrderRatio> ratios;
  for (const OrderPoint& order : orders) {
    const BenchPoint& point = order.point;
    if (order.order == Shuffle::kNone) continue;
    const auto sequential = std::find_if(orders.begin(), orders.end(), [&point](const OrderPoint& other) {
      return other.order == Shuffle::kNone && other.point.threads == point.threads;
    });
    if (sequential == orders.end()) continue;
    const BenchSummary beside = Summarize(sequential->point);
    const BenchSummary sum = Summarize(point);
    std::vector<double> shares;
    for (size_t i = 0; i < std::min(point.windows.size(), sequential->point.windows.size()); ++i) {
      const double base = RateOf(sequential->point.windows[i]);
      if (base > 0) shares.push_back(RateOf(point.windows[i]) / base);
    }
    if (shares.empty()) continue;
    const double waited = std::accumulate(sum.stalls.begin(), sum.stalls.end(), 0.0);
    ratios.push_back({.order = order.order,
                      .raw = order.raw,
                      .threads = point.threads,
                      .rate = Spread::Of(std::move(shares)),
                      .busy_cpus = beside.busy_cpus.median + beside.other_busy_cpus.median,
                      .decode_share = waited > 0 ? sum.stalls[static_cast<size_t>(StallCause::kDecode)] / waited : 0});
  }
  return ratios;
}

std::string BenchReport::orders_note() const {
  if (orders.empty() || orders.front().point.sample_bytes > settings.loader.memory_bytes) return "";
  return fmt::format(
      "The data, {}, fit into the memory budget, {}: neighbours in shards are read together in any order. With less "
      "--memory, or more data, a random order takes more requests.",
      FormatSize(orders.front().point.sample_bytes), FormatSize(settings.loader.memory_bytes));
}

PipelineLimit BenchReport::limit() const {
  const BenchPoint* const point = best();
  if (point == nullptr) return {.sentence = "The rate of the pipeline was not measured (--scenario rate measures it)."};
  return FindLimit(Summarize(*point), point->threads, machine.cpus);
}

std::string ShortNumber(double value) {
  if (std::fabs(value) < 100) return fmt::format("{:.3g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  const int sign = value < 0 ? 1 : 0;
  for (auto at = static_cast<int>(digits.size()) - 3; at > sign; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string NameOf(const BenchPoint& point) {
  return Counted(static_cast<uint64_t>(point.threads), "thread");
}
std::string NameOf(const std::pair<uint64_t, BenchPoint>& shards) {
  return fmt::format("{} shards", FormatSize(shards.first));
}
std::string NameOf(const BenchReport::OrderPoint& order) {
  return fmt::format("{}, {}", OrderName(order.order, order.raw), NameOf(order.point));
}
std::string_view OrderName(Shuffle order, bool raw) {
  return raw ? "raw" : ShuffleName(order);
}
std::string TextOf(const BenchReport::OrderRatio& ratio) {
  return fmt::format(
      "{}, {}: {:.3f} of the sequential rate ({:.3f} to {:.3f}), at which {:.2f} CPUs were busy; "
      "{:.0f} % of its waiting was for decoding",
      OrderName(ratio.order, ratio.raw), Counted(static_cast<uint64_t>(ratio.threads), "thread"), ratio.rate.median,
      ratio.rate.least, ratio.rate.most, ratio.busy_cpus, 100 * ratio.decode_share);
}
std::string NameOf(const RivalPoint& point) {
  return fmt::format("{}, {}", point.name, Counted(static_cast<uint64_t>(point.workers), "worker"));
}
std::string NameOf(const RivalEpochs& epochs) {
  return epochs.kept ? epochs.name + ", with a cache" : epochs.name;
}
std::string NameOf(const std::pair<uint64_t, RivalPoint>& shards) {
  return fmt::format("{}, {} shards", shards.second.name, FormatSize(shards.first));
}
std::string NameOf(const FirstBatchPoint& point) {
  return Counted(point.samples, "sample");
}

double CpuRate(const BenchSummary& measured) {
  return measured.cpu_per_1000.median > 0 ? 1000 / measured.cpu_per_1000.median : 0;
}

std::string BesideText(const BenchReport& report) {
  const BenchPoint* const best = report.best();
  const RivalPoint* fastest = nullptr;
  const RivalPoint* cheapest = nullptr;
  std::set<std::string> names;
  for (const RivalPoint& rival : report.rivals) {
    if (!rival.left_out.empty()) continue;
    names.insert(rival.name);
    if (fastest == nullptr || rival.samples_per_second.median > fastest->samples_per_second.median) fastest = &rival;
    const bool is_cheaper = cheapest == nullptr || rival.cpu_per_1000.median < cheapest->cpu_per_1000.median;
    if (rival.cpu_per_1000.median > 0 && is_cheaper) cheapest = &rival;
  }
  if (fastest == nullptr || cheapest == nullptr || best == nullptr) return "";
  const BenchSummary ours = Summarize(*best);
  return fmt::format(
      "The fastest of {} over the same data was {} with {} samples/s (Millrace: {}). {} took the least CPU, {} s for "
      "1,000 samples (Millrace: {}).",
      Counted(names.size(), "other loader"), fastest->name, ShortNumber(fastest->samples_per_second.median),
      ShortNumber(ours.samples_per_second.median), cheapest->name, ShortNumber(cheapest->cpu_per_1000.median),
      ShortNumber(ours.cpu_per_1000.median));
}

std::string GpuText(const BenchReport& report, const BenchSummary& measured) {
  std::map<std::string, size_t> counts;
  for (const std::string& gpu : report.machine.gpus) ++counts[gpu];
  std::string gpus;
  for (const auto& [name, count] : counts) gpus += fmt::format("{}{} x {}", gpus.empty() ? "" : ", ", count, name);
  return fmt::format("GPUs meanwhile: {}, busy {:.0f} % of the time by any program, {} of memory in use", gpus,
                     100 * measured.gpu_busy.median, FormatSize(measured.gpu_memory_bytes));
}

std::string DamagedText(const DamagedSamples& damaged, const std::string& uri) {
  const QuarantinedSample& first = *damaged.first();
  return fmt::format(
      "{}, whose places others took; the first: {}: {}. `millrace inspect '{}' --decode all` lists them.",
      Counted(damaged.count(), "sample"), first.uri, first.reason, uri);
}

std::string BenchText(const BenchReport& report) {
  const int cpus = report.machine.cpus;
  std::string text = report.limit().sentence + "\n";
  if (const std::string beside = BesideText(report); !beside.empty()) text += beside + "\n";
  if (!report.rate.empty()) {
    const double step_ms = 1000 * report.settings.step_seconds;
    text += step_ms > 0 ? fmt::format("\nRate with a model of {:.4g} ms a step (d), by decoding threads\n", step_ms)
                        : "\nMaximum rate without a model (d), by decoding threads\n";
    text += RateHead("");
    for (const BenchPoint& point : report.rate) text += RateRow(NameOf(point), point, cpus);
    const BenchPoint& best = *report.best();
    text += StallsText(Summarize(best)) + RequestsText(report, best);
    if (!report.machine.gpus.empty()) text += "  " + GpuText(report, Summarize(best)) + "\n";
    text += fmt::format("  Beside it: {:.0f} and {:.0f} samples/s for each vCPU in {}.\n", kPublishedRates[0],
                        kPublishedRates[1], kPublishedSource);
  }
  if (!report.orders.empty()) {
    text += "\nRandom and sequential order (a), by decoding threads\n" + RateHead("");
    for (const BenchReport::OrderPoint& order : report.orders) text += RateRow(NameOf(order), order.point, cpus);
    for (const BenchReport::OrderRatio& ratio : report.order_ratios()) text += fmt::format("  {}\n", TextOf(ratio));
    if (const std::string note = report.orders_note(); !note.empty()) text += fmt::format("  {}\n", note);
    text += ObjectRivalsText(report);
  }
  if (!report.epochs.empty()) text += EpochsText(report) + ObjectEpochsText(report);
  if (!report.shards.empty()) {
    text += "\nSequential reading (c), by the size of a shard\n" + RateHead("");
    for (const auto& point : report.shards) text += RateRow(NameOf(point), point.second, cpus);
    text += ShardRivalsText(report);
  }
  if (!report.first_batch.empty()) {
    text += "\nTime to the first batch (e), by the samples of the data set\n";
    text += fmt::format("  {:<16} {:>24} {:>24}  requests\n", "", "s (least-most)", "of it, opening");
    for (const FirstBatchPoint& point : report.first_batch) {
      text += fmt::format("  {:<16} {:>24} {:>24}  {} GET, {} LIST, {} HEAD\n", NameOf(point), RangeText(point.seconds),
                          RangeText(point.open_seconds), point.requests.get, point.requests.list, point.requests.head);
    }
    for (const auto& [samples, seconds] : report.downloads) {
      text += fmt::format("  {:<16} {:>24}  to copy all of it to files first, as File mode does\n",
                          Counted(samples, "sample"), RangeText(seconds));
    }
  }
  if (report.resume) text += ResumeText(*report.resume);
  if (report.storm) text += StormText(*report.storm);
  if (!report.rivals.empty()) text += RivalsText(report);
  text += fmt::format("\nData: {}{}{}\n", report.uri, report.data.empty() ? "" : ": ", report.data);
  if (!report.store.empty()) text += fmt::format("Store: {}\n", report.store);
  if (report.damaged.count() > 0) text += fmt::format("Damaged: {}\n", DamagedText(report.damaged, report.uri));
  text += fmt::format("Machine: {}, {}, {}, {}; {}; millrace {}; {}\n", report.machine.cpu,
                      Counted(static_cast<uint64_t>(cpus), "vCPU"), FormatSize(report.machine.memory_bytes),
                      report.machine.kernel, report.machine.compiler, report.version, report.machine.date);
  return text;
}

}  // namespace millrace::cli
