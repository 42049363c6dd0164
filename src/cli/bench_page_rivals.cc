#include "cli/bench_page_rivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/size.h"
#include "cli/bench_page_parts.h"

namespace millrace::cli {

namespace {

PlotPoint RivalRate(double x, std::string x_text, const RivalPoint& rival) {
  const Spread& rate = rival.samples_per_second;
  return {.x = x, .y = rate.median, .least = rate.least, .most = rate.most, .x_text = std::move(x_text)};
}

/// Curves against the number of workers if there are several; four in a plot. The curve of a rival that was left out
/// from some number on ends there.
std::string WorkerPlots(const std::string& title, const std::vector<RivalPoint>& rivals, const BenchPoint& ours) {
  std::map<std::string, PlotLine> lines;
  size_t most = 0;
  for (const RivalPoint& rival : rivals) {
    if (!rival.left_out.empty()) continue;
    PlotLine& line = lines[rival.name];
    line.name = rival.name;
    line.points.push_back(RivalRate(rival.workers, std::to_string(rival.workers), rival));
    most = std::max(most, line.points.size());
  }
  if (most < 2) return "";
  constexpr size_t kLines = 4;
  const PlotReference beside{
      .y = Summarize(ours).samples_per_second.median,
      .text = fmt::format("millrace, one process with {}", Counted(static_cast<uint64_t>(ours.threads), "thread"))};
  std::vector<PlotLine> sorted;
  for (auto& [name, line] : lines) sorted.push_back(std::move(line));
  // The first of a plot, whose numbers are below the axis, has all those of the others.
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const PlotLine& one, const PlotLine& other) { return one.points.size() > other.points.size(); });
  std::vector<LinePlot> plots;
  for (PlotLine& line : sorted) {
    if (plots.empty() || plots.back().lines.size() == kLines) {
      plots.push_back({.title = title,
                       .x_name = "worker processes, or threads that decode",
                       .y_name = "samples/s",
                       .log_x = true,
                       .references = {beside}});
    }
    plots.back().lines.push_back(std::move(line));
  }
  std::string drawn;
  for (const LinePlot& plot : plots) drawn += DrawLines(plot);
  return drawn;
}

/// Millrace and those others that have figures, the best first.
std::string RivalBars(const BenchReport& report) {
  const BenchSummary ours = Summarize(*report.best());
  const auto bar = [](const std::string& name, const Spread& value, bool is_ours) {
    return PlotBar{.name = name,
                   .value = value.median,
                   .least = value.least,
                   .most = value.most,
                   .text = ShortNumber(value.median),
                   .is_ours = is_ours};
  };
  std::vector<PlotBar> rates = {bar("millrace", ours.samples_per_second, true)};
  std::vector<PlotBar> costs = {bar("millrace", ours.cpu_per_1000, true)};
  for (const RivalPoint& rival : report.rivals) {
    if (!rival.left_out.empty()) continue;
    rates.push_back(bar(rival.name, rival.samples_per_second, false));
    costs.push_back(bar(rival.name, rival.cpu_per_1000, false));
  }
  if (rates.size() == 1) return "";
  std::stable_sort(rates.begin(), rates.end(), [](const PlotBar& a, const PlotBar& b) { return a.value > b.value; });
  std::stable_sort(costs.begin(), costs.end(), [](const PlotBar& a, const PlotBar& b) { return a.value < b.value; });
  return "<p class=\"note\">Samples a second: more is better.</p>\n" +
         DrawBars("Samples per second of Millrace and of other loaders", rates) +
         "<p class=\"note\">CPU-seconds for 1,000 samples: less is better.</p>\n" +
         DrawBars("CPU-seconds of Millrace and of other loaders", costs);
}

/// A row of a table: what a rival made, also as a share of Millrace's rate, or why it is left out.
std::string CurveRow(const std::string& name, const RivalPoint& rival, const BenchPoint& ours) {
  if (!rival.left_out.empty()) {
    return fmt::format("<tr>{}<td class=\"note\" colspan=\"3\">left out: {}</td></tr>\n", Cell(name),
                       EscapeMarkup(rival.left_out));
  }
  const double base = Summarize(ours).samples_per_second.median;
  const double share = base > 0 ? rival.samples_per_second.median / base : 0;
  return Row(
      {name, WithSpread(rival.samples_per_second), fmt::format("{:.2f}", share), WithSpread(rival.cpu_per_1000)});
}

std::string CurveTable(const std::string& rows) {
  return R"(<div class="wide"><table>)" + Row({"", "samples/s", "of Millrace's", "CPU-s per 1,000"}, "th") + rows +
         "</table></div>\n";
}

}  // namespace

std::string RivalSection(const BenchReport& report) {
  if (report.rivals.empty()) return "";
  const BenchSummary ours = Summarize(*report.best());
  std::string rates;
  std::string versions;
  const auto add = [&](const std::string& name, const Spread& rate, const Spread& cpu, double first_batch) {
    const double share = ours.samples_per_second.median > 0 ? rate.median / ours.samples_per_second.median : 0;
    rates += Row({name, WithSpread(rate), fmt::format("{:.2f}", share), WithSpread(cpu), ShortNumber(first_batch)});
  };
  const auto tell = [&](const std::string& name, const std::string& what) {
    versions += fmt::format("<tr>{}<td class=\"note\">{}</td></tr>\n", Cell(name), EscapeMarkup(what));
  };
  add("millrace", ours.samples_per_second, ours.cpu_per_1000, report.beside_rivals->seconds.median);
  std::set<std::string> told;
  for (const RivalPoint& rival : report.rivals) {
    if (!rival.left_out.empty()) {
      tell(NameOf(rival), "left out: " + rival.left_out);
      continue;
    }
    add(NameOf(rival), rival.samples_per_second, rival.cpu_per_1000, rival.first_batch_seconds);
    if (!told.insert(rival.name).second) continue;
    std::string packages;
    for (const auto& [package, version] : rival.versions) {
      packages += fmt::format("{}{} {}", packages.empty() ? "" : ", ", package, version);
    }
    tell(rival.name, packages);
  }
  const std::string by_workers =
      WorkerPlots("Samples per second of other loaders against their workers", report.rivals, *report.best());
  return "<h2>Other loaders over the same data</h2>\n" + (by_workers.empty() ? RivalBars(report) : by_workers) +
         "<div class=\"wide\"><table>" +
         Row({"", "samples/s", "of Millrace's", "CPU-s per 1,000", "first batch, s"}, "th") + rates +
         "</table></div>\n<p class=\"note\">Each decodes, crops, flips and resizes the same images in processes of its "
         "own, one loader after the other. The number of its images and the mean of their pixels were compared with "
         "Millrace's. " +
         fmt::format(
             "What a loader takes to begin an epoch, of {} here, is in its rate: with few samples it counts "
             "much.</p>\n<table>",
             Counted(report.best()->samples, "sample")) +
         versions + "</table>\n";
}

std::string ObjectRivals(const BenchReport& report) {
  const BenchPoint* const ours = report.best_of_objects();
  if (report.object_rivals.empty() || ours == nullptr) return "";
  std::string rows;
  for (const RivalPoint& rival : report.object_rivals) rows += CurveRow(NameOf(rival), rival, *ours);
  return "<h3>Other loaders over the same raw objects, at random</h3>\n" +
         WorkerPlots("Samples per second of other loaders over raw objects against their workers", report.object_rivals,
                     *ours) +
         CurveTable(rows) +
         "<p class=\"note\">A worker waits for each object, so that few of them leave the CPUs idle; with many it is "
         "the "
         "CPUs that limit. Millrace has many requests in flight from one thread for the network.</p>\n";
}

std::string ObjectEpochs(const BenchReport& report) {
  if (report.object_epochs.empty()) return "";
  constexpr size_t kLines = 4;  // Millrace and the first of the others, each without and with a cache
  LinePlot plot{.title = "Seconds of each epoch over raw objects, without and with a cache",
                .x_name = "epoch",
                .y_name = "seconds"};
  std::vector<std::string> head = {""};
  std::string rows;
  for (const RivalEpochs& one : report.object_epochs) {
    std::vector<std::string> cells = {NameOf(one)};
    PlotLine line{.name = NameOf(one)};
    for (const EpochCost& epoch : one.epochs) {
      const std::string number = std::to_string(cells.size());
      if (head.size() == cells.size()) head.push_back(fmt::format("epoch {}, s", number));
      line.points.push_back({.x = static_cast<double>(cells.size()),
                             .y = epoch.seconds,
                             .least = epoch.seconds,
                             .most = epoch.seconds,
                             .x_text = number});
      cells.push_back(ShortNumber(epoch.seconds));
    }
    if (!one.left_out.empty()) {
      rows += fmt::format("<tr>{}<td class=\"note\" colspan=\"{}\">left out: {}</td></tr>\n", Cell(NameOf(one)),
                          head.size() - 1, EscapeMarkup(one.left_out));
      continue;
    }
    rows += Row(cells);
    if (plot.lines.size() < kLines) plot.lines.push_back(std::move(line));
  }
  return "<h3>Epochs over raw objects, at random</h3>\n" + DrawLines(plot) + "<table>" + Row(head, "th") + rows +
         fmt::format(
             "</table>\n<p class=\"note\">Each object is a request. With a cache, what was read stays on the local "
             "disk: "
             "by Millrace's cache, by fsspec's simplecache (dataloader), and by the caches of the mounts. The others "
             "have "
             "{} each, and Millrace one process.</p>\n",
             Counted(static_cast<uint64_t>(report.object_epochs.back().workers), "worker"));
}

std::vector<PlotLine> ShardRivalLines(const BenchReport& report) {
  std::map<std::string, PlotLine> lines;
  for (const auto& [bytes, rival] : report.shard_rivals) {
    if (!rival.left_out.empty()) continue;
    PlotLine& line = lines[rival.name];
    line.name = rival.name;
    line.points.push_back(RivalRate(static_cast<double>(bytes), FormatSize(bytes), rival));
  }
  std::vector<PlotLine> found;
  for (auto& [name, line] : lines) found.push_back(std::move(line));
  return found;
}

std::string ShardRivalTable(const BenchReport& report) {
  std::string rows;
  for (const auto& rival : report.shard_rivals) {
    for (const auto& [bytes, ours] : report.shards) {
      if (bytes == rival.first) rows += CurveRow(NameOf(rival), rival.second, ours);
    }
  }
  if (rows.empty()) return "";
  return CurveTable(rows) +
         fmt::format("<p class=\"note\">The others have {} each, and shuffle through a buffer of 1,000 samples.</p>\n",
                     Counted(static_cast<uint64_t>(report.shard_rivals.front().second.workers), "worker"));
}

}  // namespace millrace::cli
