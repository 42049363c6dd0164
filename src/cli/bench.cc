#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/atomic_file.h"
#include "cli/bench_page.h"
#include "cli/bench_report.h"
#include "cli/bench_request.h"
#include "cli/bench_scenarios.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/usage.h"

namespace millrace::cli {

namespace {

absl::Status WriteReports(const BenchFlags& flags, const BenchReport& report, const std::string& python) {
  // If the page fails, the figures of a long run are still there.
  const absl::Status page =
      flags.html.empty() ? absl::OkStatus() : WriteBenchPage(python, BenchPageJson(report), flags.html);
  if (flags.json == "-") {
    RETURN_IF_ERROR(WriteStdout(BenchJson(report)));
    return page;
  }
  if (!flags.json.empty()) RETURN_IF_ERROR(WriteFileAtomically(flags.json, BenchJson(report)));
  std::string text = BenchText(report);
  if (!flags.html.empty() && page.ok()) text += fmt::format("Page: {}\n", flags.html);
  std::string shown;
  for (size_t at = 0; at < text.size();) {  // URIs may hold anything; lines stay lines
    const size_t end = std::min(text.find('\n', at), text.size());
    shown += Printable(std::string_view(text).substr(at, end - at)) + '\n';
    at = end + 1;
  }
  RETURN_IF_ERROR(WriteStdout(shown));
  return page;
}

absl::Status Bench(const BenchFlags& flags) {
  ASSIGN_OR_RETURN(BenchRequest request, ToBenchRequest(flags));
  CatchInterrupts();  // so that what is made here is removed
  ASSIGN_OR_RETURN(const BenchPlace place, MakeBenchPlace(flags, request));
  const InterruptStop interrupt;  // from here on there are threads
  std::string python;
  if (!flags.html.empty()) {
    ASSIGN_OR_RETURN(python, FindPagePython(interrupt.token()));
  }
  ASSIGN_OR_RETURN(const BenchReport report, RunBench(flags, std::move(request), place, interrupt.token()));
  return WriteReports(flags, report, python);
}

}  // namespace

void AddBench(Command app) {
  const Command bench = app.AddCommand("bench", "Measure how fast samples can be had, and say what limits it");
  auto flags = std::make_shared<BenchFlags>();
  AddBenchOptions(bench, flags.get());
  AddBenchCompare(bench);
  bench.Footer(
      "Runs the input pipeline (fetch, decode, augment, batch) without a model. Each figure is a median of repeats, "
      "with min and max. The first line says what limits the pipeline. If the data set does not have an index, the "
      "command builds one first, as every command does. More: docs/bench.md\n\n"
      "Examples:\n"
      "  millrace bench --synthetic --quick --html report.html\n"
      "  millrace bench s3://bucket/train --html report.html --json after.json\n"
      "  millrace bench s3://bucket/train --threads 1,2,4,8 --scenario rate --scenario first-batch\n"
      "  millrace bench s3://bucket/train --rival dataloader,webdataset --html report.html\n"
      "  millrace bench compare before.json after.json");
  bench.Run([flags] { return ExitStatus("bench", HintAtS3(Bench(*flags), {flags->uri})); });
}

}  // namespace millrace::cli
