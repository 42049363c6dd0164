#pragma once

#include <string>

#include "cli/bench_report.h"
#include "cli/svg_plot.h"

/// What the page of `millrace bench` shows of other loaders.

namespace millrace::cli {

/// Over the data set of the report; "" if there are none.
std::string RivalSection(const BenchReport& report);

/// Over the raw objects of scenario a, by their workers; "" if there are none.
std::string ObjectRivals(const BenchReport& report);

/// Epochs over the raw objects of scenario b, Millrace's among them; "" if there are none.
std::string ObjectEpochs(const BenchReport& report);

/// Over the shards of scenario c: a line for each. There may be none.
std::vector<PlotLine> ShardRivalLines(const BenchReport& report);
/// Their table; "" if there are none.
std::string ShardRivalTable(const BenchReport& report);

}  // namespace millrace::cli
