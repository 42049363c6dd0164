#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/file_text.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "diagnose/bench_compare.h"

namespace millrace::cli {

namespace {

constexpr size_t kMaxReportBytes = 64 << 20;

absl::StatusOr<std::string> ReadReport(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFileText(path, kMaxReportBytes + 1));
  if (text.size() > kMaxReportBytes) return absl::InvalidArgumentError(fmt::format("{} is larger than 64 MiB", path));
  return text;
}

struct CompareFlags {
  std::string first;
  std::string second;
  bool json = false;
};

constexpr const char* kVerdicts[] = {"same", "better", "worse"};

std::string CompareText(const BenchComparison& comparison) {
  std::string text;
  std::string point;
  for (const ComparedMeasure& one : comparison.measures) {
    if (one.point != point) text += one.point + "\n";
    point = one.point;
    text += fmt::format("  {:<30} {:>12} {:>12}  x {:<6.3f} {}\n", one.measure, ShortNumber(one.first.median),
                        ShortNumber(one.second.median), one.ratio(),
                        one.verdict == ComparedMeasure::Verdict::kSame ? "within the spread of the repeats"
                                                                       : kVerdicts[static_cast<int>(one.verdict)]);
  }
  if (!comparison.differences.empty()) text += "The two runs differ in:\n";
  for (const std::string& difference : comparison.differences) text += fmt::format("  {}\n", Printable(difference));
  return text;
}

std::string CompareJson(const BenchComparison& comparison) {
  const JsonArray measures = JsonOfEach(comparison.measures, [&](const ComparedMeasure& one) {
    return JSON_OF(one.point, one.measure, Named("first", one.first.median), Named("second", one.second.median),
                   one.ratio(), Named("verdict", kVerdicts[static_cast<int>(one.verdict)]));
  });
  return JsonObject{{"measures", measures}, {"differences", comparison.differences}}.Versioned("bench.compare");
}

absl::Status Compare(const CompareFlags& flags) {
  ASSIGN_OR_RETURN(const std::string first, ReadReport(flags.first));
  ASSIGN_OR_RETURN(const std::string second, ReadReport(flags.second));
  ASSIGN_OR_RETURN(const BenchComparison comparison, CompareBench(first, flags.first, second, flags.second));
  return WriteStdout(flags.json ? CompareJson(comparison) : CompareText(comparison));
}

}  // namespace

void AddBenchCompare(Command bench) {
  const Command compare = bench.AddOptionalCommand("compare", "Compare two reports of --json FILE");
  auto flags = std::make_shared<CompareFlags>();
  compare.Add("first", &flags->first, "A report").Required();
  compare.Add("second", &flags->second, "Another one").Required();
  compare.AddFlag("--json", &flags->json, "One JSON object on stdout");
  compare.Footer(
      "A difference counts as better or worse only if the repeats of the two do not overlap. All "
      "differences in machine, data and settings are listed.\n\n"
      "Examples:\n"
      "  millrace bench compare before.json after.json");
  compare.Run([flags] { return ExitStatus("bench compare", Compare(*flags)); });
}

}  // namespace millrace::cli
