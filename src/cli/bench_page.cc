#include "cli/bench_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/counted.h"
#include "base/size.h"
#include "cli/bench_page_parts.h"
#include "cli/bench_page_rivals.h"
#include "cli/damaged_text.h"
#include "cli/svg_plot.h"

namespace millrace::cli {

namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5b6875; --paper: #ffffff; --band: #f2f5f8; --grid: #dfe5ea;
  --main: #0b6e99; --other: #b3541e; --third: #4f6b1d; --fourth: #7d2f6e; --bar: #a9b4be; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --soft: #9aa7b4; --paper: #12181f; --band: #1b242e;
  --grid: #2c3947; --main: #58b7e0; --other: #e59866; --third: #a3c25e; --fourth: #d48ac6; --bar: #5b6875; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 52rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.1rem; color: var(--soft); font-weight: 600; margin-bottom: .3rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; } h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
.limit { font-size: 1.35rem; line-height: 1.4; margin: 0 0 1.2rem; }
.beside { margin: 0 0 1.2rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .6rem; }
.tile { background: var(--band); border-radius: .4rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.5rem; font-weight: 600; }
.tile span, p.note, td.note { color: var(--soft); font-size: .875rem; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .45rem; border-bottom: 1px solid var(--grid); vertical-align: top; }
th:first-child, td:first-child, td.note { text-align: left; }
td:first-child, div.wide td { white-space: nowrap; }
div.wide { overflow-x: auto; }
svg { width: 100%; height: auto; display: block; margin: .4rem 0; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .grid { stroke: var(--grid); } svg polyline { fill: none; }
svg g.line-0 { stroke: var(--main); stroke-width: 2; } svg g.line-1 { stroke: var(--other); stroke-width: 2; }
svg g.line-2 { stroke: var(--third); stroke-width: 2; } svg g.line-3 { stroke: var(--fourth); stroke-width: 2; }
svg .line-0 circle, svg text.line-0 { fill: var(--main); } svg .line-1 circle, svg text.line-1 { fill: var(--other); }
svg .line-2 circle, svg text.line-2 { fill: var(--third); } svg .line-3 circle, svg text.line-3 { fill: var(--fourth); }
svg line.reference { stroke: var(--ink); stroke-dasharray: 6 4; } svg text.reference { fill: var(--ink); }
svg text.reference, svg text.line-0, svg text.line-1, svg text.line-2, svg text.line-3 { paint-order: stroke;
  stroke: var(--paper); stroke-width: 4px; }
svg .bar { fill: var(--bar); } svg .ours { fill: var(--main); } svg .spread { stroke: var(--ink); stroke-width: 1.5; }
svg text.share { fill: #fff; font-weight: 600; }
.share-0 { fill: #5c4d9c; } .share-1 { fill: #7a7a7a; } .share-2 { fill: #94611d; } .share-3 { fill: #b3541e; }
.share-4 { fill: #a8323e; } .share-5 { fill: #7d2f6e; } .share-6 { fill: #4f6b1d; } .share-7 { fill: #0b6e99; }
.share-8 { fill: #2f7d5b; }
)";

std::string Tile(const std::string& value, const std::string& what) {
  return fmt::format(R"(<div class="tile"><b>{}</b><span>{}</span></div>)", EscapeMarkup(value), EscapeMarkup(what));
}

std::string RateRows(const std::string& name, const BenchPoint& point, int cpus) {
  const BenchSummary sum = Summarize(point);
  return Row({name, WithSpread(sum.samples_per_second), ShortNumber(sum.samples_per_second.median / cpus),
              ShortNumber(sum.bytes_per_second.median / 1e6), ShortNumber(sum.cpu_per_1000.median),
              fmt::format("{:.2f} ({:.2f})", sum.busy_cpus.median, sum.other_busy_cpus.median),
              ShortNumber(sum.gets_per_1000.median), ShortNumber(sum.batch_p50_ms.median),
              ShortNumber(sum.batch_p99_ms.median), FormatSize(point.peak_rss_bytes)});
}

std::string RateTable(const std::string& rows) {
  return R"(<div class="wide"><table>)" +
         Row({"", "samples/s", "per vCPU", "MB/s", "CPU-s per 1,000", "busy CPUs (others)", "GETs per 1,000",
              "batch p50, ms", "batch p99, ms", "peak RSS"},
             "th") +
         rows + "</table></div>\n";
}

PlotPoint RatePoint(double x, std::string text, const BenchPoint& point) {
  const Spread rate = Summarize(point).samples_per_second;
  return {.x = x, .y = rate.median, .least = rate.least, .most = rate.most, .x_text = std::move(text)};
}

std::string Head(const BenchReport& report) {
  std::string page = "<h1>millrace bench: how fast this machine makes batches for a training</h1>\n";
  page += fmt::format("<p class=\"limit\">{}</p>\n", EscapeMarkup(report.limit().sentence));
  if (const std::string beside = BesideText(report); !beside.empty()) {
    page += fmt::format("<p class=\"beside\">{}</p>\n", EscapeMarkup(beside));
  }
  const BenchPoint* const best = report.best();
  if (best == nullptr) return page;
  const BenchSummary sum = Summarize(*best);
  page += R"(<div class="tiles">)";
  page += Tile(ShortNumber(sum.samples_per_second.median), "samples/s, decoded by " + NameOf(*best));
  page += Tile(ShortNumber(sum.samples_per_second.median / report.machine.cpus), "samples/s for each vCPU");
  page += Tile(ShortNumber(sum.bytes_per_second.median / 1e6), "MB/s from the store");
  page += Tile(ShortNumber(sum.cpu_per_1000.median), "CPU-seconds for 1,000 samples");
  page += Tile(ShortNumber(CpuRate(sum)), "samples/s of a CPU that does nothing else");
  if (sum.model_busy.median > 0) {
    page += Tile(fmt::format("{:.1f} %", 100 * sum.model_busy.median), "of the time the model was busy");
  }
  page += Tile(FormatSize(best->peak_rss_bytes), "peak resident memory");
  const RequestCounts epoch = EpochRequests(*best);
  page += report.priced ? Tile(DollarText(report.prices.DollarsOf(epoch)), "requests of an epoch")
                        : Tile(ShortNumber(static_cast<double>(epoch.get)), "reads for an epoch");
  return page + fmt::format("</div>\n<p class=\"note\">{}; {}, {}; {}.</p>\n",
                            EscapeMarkup(report.data.empty() ? report.uri : report.data),
                            EscapeMarkup(report.machine.cpu),
                            Counted(static_cast<uint64_t>(report.machine.cpus), "vCPU"), report.machine.date);
}

std::string RateSection(const BenchReport& report) {
  if (report.rate.empty()) return "";
  const int cpus = report.machine.cpus;
  LinePlot plot{.title = "Samples per second against decoding threads",
                .x_name = "decoding threads",
                .y_name = "samples/s",
                .lines = {{}}};
  std::string rows;
  for (const BenchPoint& point : report.rate) {
    plot.lines[0].points.push_back(RatePoint(point.threads, std::to_string(point.threads), point));
    rows += RateRows(NameOf(point), point, cpus);
  }
  for (const double rate : kPublishedRates) {
    plot.references.push_back(
        {.y = rate * cpus,
         .text = fmt::format("{:.0f} for each of {} (published)", rate, Counted(static_cast<uint64_t>(cpus), "vCPU"))});
  }
  const bool model = report.settings.step_seconds > 0;
  return (model ? fmt::format("<h2>Rate with a model of {:.4g} ms a step</h2>\n", 1000 * report.settings.step_seconds)
                : "<h2>Maximum rate without a model</h2>\n") +
         DrawLines(plot) + RateTable(rows) +
         fmt::format(
             "<p class=\"note\">Marks are medians of {}, bars reach from the least to the most. Dashed lines: "
             "{}. Other processors and images give other numbers.</p>\n",
             Counted(static_cast<uint64_t>(report.settings.windows), "repeat"), EscapeMarkup(kPublishedSource));
}

std::string StallSection(const BenchReport& report) {
  const BenchPoint* const best = report.best();
  if (best == nullptr) return "";
  const BenchSummary sum = Summarize(*best);
  const double waited = std::accumulate(sum.stalls.begin(), sum.stalls.end(), 0.0);
  std::vector<std::pair<std::string, double>> shares;
  std::string rows;
  for (size_t i = 0; i < kStallCauses; ++i) {
    const std::string name(StallCauseName(static_cast<StallCause>(i)));
    shares.emplace_back(name, sum.stalls[i]);
    if (sum.stalls[i] < 0.0005) continue;
    rows += Row({name, fmt::format("{:.3f} s", sum.stalls[i]),
                 fmt::format("{:.1f} %", waited > 0 ? 100 * sum.stalls[i] / waited : 0)});
  }
  return "<h2>What the consumer waited for</h2>\n" + DrawShares("Waiting by cause", shares) +
         fmt::format("<p class=\"note\">It waited {:.1f} of {:.1f} s{}. The largest cause is what limits.</p>\n",
                     waited, sum.seconds,
                     report.settings.step_seconds > 0 ? "" : ", which without a model is nearly all of it") +
         "<table>" + Row({"cause", "seconds", "share"}, "th") + rows + "</table>\n";
}

std::string LatencySection(const BenchReport& report) {
  const BenchPoint* const best = report.best();
  if (best == nullptr) return "";
  std::vector<double> times;
  for (const BenchWindow& window : best->windows) {
    times.insert(times.end(), window.batch_ms.begin(), window.batch_ms.end());
  }
  if (times.empty()) return "";
  std::sort(times.begin(), times.end());
  LinePlot plot{.title = "Time between batches by the share of batches",
                .x_name = "share of batches that took no longer",
                .y_name = "ms",
                .lines = {{}}};
  for (int percent = 0; percent <= 100; ++percent) {
    const double y = QuantileOf(times, percent / 100.0);
    plot.lines[0].points.push_back({.x = static_cast<double>(percent),
                                    .y = y,
                                    .least = y,
                                    .most = y,
                                    .x_text = percent % 25 == 0 ? fmt::format("{} %", percent) : ""});
  }
  return fmt::format("<h2>Time between batches of {}</h2>\n", report.settings.loader.batch) + DrawLines(plot) +
         fmt::format("<p class=\"note\">Half of {} came within {:.1f} ms, 99 % within {:.1f} ms.</p>\n",
                     std::to_string(times.size()) + " batches", QuantileOf(times, 0.5), QuantileOf(times, 0.99));
}

std::string OrderSection(const BenchReport& report) {
  if (report.orders.empty()) return "";
  LinePlot plot{.title = "Samples per second against decoding threads, by order",
                .x_name = "decoding threads",
                .y_name = "samples/s"};
  std::string rows;
  for (const BenchReport::OrderPoint& order : report.orders) {
    const std::string name(OrderName(order.order, order.raw));
    if (plot.lines.empty() || plot.lines.back().name != name) plot.lines.push_back({.name = name});
    plot.lines.back().points.push_back(
        RatePoint(order.point.threads, std::to_string(order.point.threads), order.point));
    rows += RateRows(NameOf(order), order.point, report.machine.cpus);
  }
  std::string ratios;
  for (const BenchReport::OrderRatio& ratio : report.order_ratios()) {
    ratios += fmt::format("<p class=\"note\">{}.</p>\n", EscapeMarkup(TextOf(ratio)));
  }
  return "<h2>Random and sequential order</h2>\n" + DrawLines(plot) + RateTable(rows) + ratios +
         "<p class=\"note\">none: as the samples are stored; window: shuffled within windows, the default; global: "
         "each "
         "sample anywhere; raw: likewise, of the same images as raw objects, so that each is a request of its own. " +
         EscapeMarkup(report.orders_note()) + "</p>\n" + ObjectRivals(report);
}

PlotLine EpochLine(const char* name, const std::vector<EpochCost>& epochs) {
  PlotLine line{.name = name};
  for (size_t i = 0; i < epochs.size(); ++i) {
    const auto gets = static_cast<double>(epochs[i].requests.get);
    line.points.push_back(
        {.x = static_cast<double>(i + 1), .y = gets, .least = gets, .most = gets, .x_text = std::to_string(i + 1)});
  }
  return line;
}

std::string EpochSection(const BenchReport& report) {
  if (report.epochs.empty()) return "";
  const LinePlot plot{
      .title = "GET requests of each epoch, with and without a cache",
      .x_name = "epoch",
      .y_name = "GET requests",
      .lines = {EpochLine("without a cache", report.epochs), EpochLine("with a cache", report.cached_epochs)}};
  std::string rows;
  for (size_t i = 0; i < report.epochs.size() && i < report.cached_epochs.size(); ++i) {
    const EpochCost& without = report.epochs[i];
    const EpochCost& with = report.cached_epochs[i];
    rows += Row({fmt::format("epoch {}", i + 1), ShortNumber(without.seconds), std::to_string(without.requests.get),
                 ShortNumber(with.seconds), std::to_string(with.requests.get)});
  }
  return "<h2>Epochs with and without a cache on the local disk</h2>\n" + DrawLines(plot) + "<table>" +
         Row({"", "seconds without", "GETs without", "seconds with", "GETs with"}, "th") + rows +
         "</table>\n<p class=\"note\">Requests ahead for a later epoch count in the epoch in which they are "
         "made.</p>\n" +
         ObjectEpochs(report);
}

std::string ShardSection(const BenchReport& report) {
  if (report.shards.empty()) return "";
  LinePlot plot{.title = "Samples per second against the size of a shard",
                .x_name = "size of a shard",
                .y_name = "samples/s",
                .log_x = true,
                .lines = {{.name = "millrace"}}};
  std::string rows;
  for (const auto& shard : report.shards) {
    plot.lines[0].points.push_back(RatePoint(static_cast<double>(shard.first), FormatSize(shard.first), shard.second));
    rows += RateRows(NameOf(shard), shard.second, report.machine.cpus);
  }
  for (PlotLine& line : ShardRivalLines(report)) plot.lines.push_back(std::move(line));
  return "<h2>Sequential reading against the size of a shard</h2>\n" + DrawLines(plot) + RateTable(rows) +
         ShardRivalTable(report);
}

std::string FirstBatchSection(const BenchReport& report) {
  if (report.first_batch.empty()) return "";
  LinePlot plot{.title = "Time to the first batch against the samples of the data set",
                .x_name = "samples of the data set",
                .y_name = "seconds",
                .lines = {{.name = "millrace"}}};
  std::string rows;
  for (const FirstBatchPoint& point : report.first_batch) {
    plot.lines[0].points.push_back({.x = static_cast<double>(point.samples),
                                    .y = point.seconds.median,
                                    .least = point.seconds.least,
                                    .most = point.seconds.most,
                                    .x_text = ShortNumber(static_cast<double>(point.samples))});
    rows += Row({NameOf(point), WithSpread(point.seconds), WithSpread(point.open_seconds),
                 std::to_string(point.requests.get), std::to_string(point.requests.list),
                 std::to_string(point.requests.head)});
  }
  std::string downloads;
  for (const auto& [samples, seconds] : report.downloads) {
    if (plot.lines.size() == 1) plot.lines.push_back({.name = "File mode"});
    plot.lines[1].points.push_back({.x = static_cast<double>(samples),
                                    .y = seconds.median,
                                    .least = seconds.least,
                                    .most = seconds.most,
                                    .x_text = ShortNumber(static_cast<double>(samples))});
    downloads += Row({Counted(samples, "sample"), WithSpread(seconds)});
  }
  if (!downloads.empty()) {
    downloads = "<table>" + Row({"File mode", "seconds"}, "th") + downloads +
                "</table>\n<p class=\"note\">File mode: a training that begins when all objects have been copied to "
                "files, which is done here by Millrace, many at a time, and without the time to its first batch.</p>\n";
  }
  return "<h2>Time to the first batch</h2>\n" + DrawLines(plot) + "<table>" +
         Row({"", "seconds", "of it, opening", "GET", "LIST", "HEAD"}, "th") + rows +
         "</table>\n<p class=\"note\">Requests are all until the first batch had come, with those ahead for later "
         "ones.</p>\n" +
         downloads;
}

std::string ResumeSection(const BenchReport& report) {
  if (!report.resume) return "";
  const ResumePoint& resume = *report.resume;
  const auto row = [](const char* name, const Spread& seconds, const RequestCounts& requests) {
    return Row({name, WithSpread(seconds), std::to_string(requests.get), std::to_string(requests.list),
                std::to_string(requests.head), FormatSize(requests.bytes_read)});
  };
  return "<h2>Resuming in the middle of an epoch</h2>\n<table>" +
         Row({"first batch", "seconds", "GET", "LIST", "HEAD", "bytes"}, "th") +
         row("from the start", resume.fresh_seconds, resume.fresh_requests) +
         row("from the middle", resume.resumed_seconds, resume.resumed_requests) + "</table>\n" +
         fmt::format(
             "<p class=\"note\">Requests and bytes are all until the batch had come, with those ahead for later ones. "
             "What came behind the interruption was {}what would have come without it.</p>\n",
             resume.exact ? "" : "<b>not</b> ");
}

std::string StormSection(const BenchReport& report) {
  if (!report.storm) return "";
  const BenchReport::Storm& storm = *report.storm;
  const auto row = [](const char* name, const EpochCost& cost) {
    return Row({name, ShortNumber(cost.seconds), ShortNumber(cost.cpu_seconds), std::to_string(cost.requests.get),
                std::to_string(cost.requests.retries), std::to_string(cost.requests.hedges)});
  };
  std::string faults;
  for (const std::string& fault : storm.faults) faults += (faults.empty() ? "" : "; ") + fault;
  return "<h2>An epoch while the store fails</h2>\n<table>" +
         Row({"", "seconds", "CPU-s", "GETs", "retries", "hedges"}, "th") + row("calm", storm.calm) +
         row("storm", storm.rough) + "</table>\n" +
         fmt::format("<p class=\"note\">Faults: {}. All {} came, and {}.</p>\n", EscapeMarkup(faults),
                     Counted(storm.rough.samples, "sample"),
                     storm.same_bytes() ? "every byte was right" : "they were <b>not</b> the same bytes");
}

std::string RequestSection(const BenchReport& report) {
  const BenchPoint* const best = report.best();
  if (best == nullptr) return "";
  const RequestCounts epoch = EpochRequests(*best);
  const RequestCounts& opening = best->opening.requests;
  const auto row = [&](const char* name, const RequestCounts& tally) {
    return Row({name, std::to_string(tally.get), std::to_string(tally.list), std::to_string(tally.head),
                std::to_string(tally.retries), FormatSize(tally.bytes_read),
                report.priced ? DollarText(report.prices.DollarsOf(tally)) : "-"});
  };
  std::string section = "<h2>Requests</h2>\n<table>" +
                        Row({"", "GET", "LIST", "HEAD", "retries", "bytes", "price"}, "th") + row("opening", opening) +
                        row("one epoch", epoch) + "</table>\n";
  section += fmt::format("<p class=\"note\">The epoch of {} is extrapolated from {} that were measured. ",
                         EscapeMarkup(Counted(best->samples, "sample")), Summarize(*best).samples);
  if (report.priced) {
    section += fmt::format("Prices: {}, {}, of {}; --prices FILE replaces them.", EscapeMarkup(report.prices.from),
                           EscapeMarkup(report.prices.region), EscapeMarkup(report.prices.date));
  } else {
    section += "This store charges no requests.";
  }
  return section + "</p>\n";
}

std::string EnvironmentSection(const BenchReport& report) {
  const BenchSettings& settings = report.settings;
  const auto row = [](const char* name, const std::string& value) {
    return fmt::format("<tr>{}<td class=\"note\">{}</td></tr>\n", Cell(name), EscapeMarkup(value));
  };
  std::string table = "<h2>Where and how</h2>\n<table>";
  table += row("data", report.data.empty() ? report.uri : fmt::format("{}: {}", report.uri, report.data));
  if (!report.store.empty()) table += row("store", report.store);
  if (report.damaged.count() > 0) table += row("damaged", DamagedText(report.damaged, report.uri));
  table += row("CPU", fmt::format("{}, {} usable", report.machine.cpu,
                                  Counted(static_cast<uint64_t>(report.machine.cpus), "vCPU")));
  if (const BenchPoint* const best = report.best(); best != nullptr && !report.machine.gpus.empty())
    table += row("GPU", GpuText(report, Summarize(*best)));
  table += row("memory", FormatSize(report.machine.memory_bytes));
  table += row("kernel", report.machine.kernel);
  table += row("program", fmt::format("millrace {}, {}", report.version, report.machine.compiler));
  table += row("date", report.machine.date);
  table += row("pipeline", fmt::format("batches of {}, {} x {} pixels{}, {} for the network, {} of memory",
                                       settings.loader.batch, settings.loader.image.width, settings.loader.image.height,
                                       settings.loader.image.augment ? ", random crop and flip" : ", centre crop",
                                       Counted(static_cast<uint64_t>(settings.io_threads), "thread"),
                                       FormatSize(settings.loader.memory_bytes)));
  table +=
      row("method", fmt::format("for each setting {:.1f} s of warm-up, then {} of {:.1f} s or more of the same "
                                "running pipeline; epochs follow one another without a pause; those of the orders take "
                                "turns, each with a warm-up",
                                settings.warm_up_seconds, Counted(static_cast<uint64_t>(settings.windows), "repeat"),
                                settings.window_seconds));
  return table + "</table>\n";
}

}  // namespace

std::string BenchPage(const BenchReport& report) {
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta "
             "charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<title>millrace bench: {}</title>\n<style>{}</style>\n</head>\n<body>\n",
             EscapeMarkup(report.uri), kStyle) +
         Head(report) + RateSection(report) + StallSection(report) + LatencySection(report) + OrderSection(report) +
         EpochSection(report) + ShardSection(report) + FirstBatchSection(report) + ResumeSection(report) +
         StormSection(report) + RivalSection(report) + RequestSection(report) + EnvironmentSection(report) +
         "</body>\n</html>\n";
}

}  // namespace millrace::cli
