#pragma once

#include <string>

#include "cli/bench_report.h"

namespace millrace::cli {

/// The report as one HTML page that needs nothing else: well-formed XML, plots as inline SVG, no script.
std::string BenchPage(const BenchReport& report);

}  // namespace millrace::cli
