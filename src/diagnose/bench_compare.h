#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "diagnose/spread.h"

/// Compares two reports of `millrace bench --json`. Pure.

namespace millrace {

/// Is one measure of one setting that both reports have.
struct ComparedMeasure {
  enum class Verdict { kSame, kBetter, kWorse };  // of the second; kSame: the repeats of the two overlap

  std::string point;    // "d, 2 threads"
  std::string measure;  // "samples_per_second"
  Spread first;
  Spread second;
  Verdict verdict = Verdict::kSame;

  double ratio() const { return first.median > 0 ? second.median / first.median : 0; }
};

struct BenchComparison {
  std::vector<ComparedMeasure> measures;
  /// Differences that may explain others: "cpu: A, B".
  std::vector<std::string> differences;
};

/// Returns InvalidArgument if one is not a report, or of another format, or if they have no setting in common; the
/// message calls them `first_name` and `second_name`.
absl::StatusOr<BenchComparison> CompareBench(std::string_view first_json, std::string_view first_name,
                                             std::string_view second_json, std::string_view second_name);

}  // namespace millrace
