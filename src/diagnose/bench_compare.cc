#include "diagnose/bench_compare.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace millrace {

namespace {

using ReportJson = nlohmann::json;

struct MeasureName {
  const char* name;
  bool more_is_better;
};
constexpr MeasureName kMeasures[] = {
    {"samples_per_second", true},     {"bytes_per_second", true}, {"cpu_seconds_per_1000_samples", false},
    {"gets_per_1000_samples", false}, {"batch_p50_ms", false},    {"batch_p99_ms", false},
    {"first_batch_seconds", false}};

const ReportJson* MemberOf(const ReportJson& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

std::string AsText(const ReportJson* json) {
  if (json == nullptr) return "-";
  return json->is_string() ? json->get<std::string>() : json->dump();
}

std::optional<Spread> SpreadIn(const ReportJson& point, const char* name) {
  const ReportJson* const spread = MemberOf(point, name);
  if (spread == nullptr) return std::nullopt;
  Spread found;
  for (const auto& [key, value] :
       {std::pair{"median", &found.median}, std::pair{"least", &found.least}, std::pair{"most", &found.most}}) {
    const ReportJson* const number = MemberOf(*spread, key);
    if (number == nullptr || !number->is_number()) return std::nullopt;
    *value = number->get<double>();
  }
  return found;
}

absl::StatusOr<ReportJson> ParseReport(std::string_view text, std::string_view name) {
  ReportJson json = ReportJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const ReportJson* const format = MemberOf(json, "bench_format");
  if (format == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{} is not a report of `millrace bench`; make one with --json FILE", name));
  }
  if (*format != 1) {
    return absl::InvalidArgumentError(
        fmt::format("{} is a report of format {}; this version of millrace reads format 1", name, format->dump()));
  }
  return json;
}

/// Returns the points of all scenarios by name.
std::map<std::string, const ReportJson*> PointsOf(const ReportJson& report) {
  std::map<std::string, const ReportJson*> points;
  const ReportJson* const scenarios = MemberOf(report, "scenarios");
  if (scenarios == nullptr || !scenarios->is_object()) return points;
  for (const auto& [scenario, curve] : scenarios->items()) {
    const ReportJson* const list = MemberOf(curve, "points");
    if (list == nullptr || !list->is_array()) continue;
    for (const ReportJson& point : *list) {
      const ReportJson* const name = MemberOf(point, "name");
      points.emplace(fmt::format("{}, {}", scenario, AsText(name)), &point);
    }
  }
  return points;
}

ComparedMeasure::Verdict VerdictOf(const Spread& first, const Spread& second, bool more_is_better) {
  if (first.Overlaps(second)) return ComparedMeasure::Verdict::kSame;
  return (second.median > first.median) == more_is_better ? ComparedMeasure::Verdict::kBetter
                                                          : ComparedMeasure::Verdict::kWorse;
}

void NoteDifferences(const ReportJson& first, const ReportJson& second, const char* section,
                     std::vector<std::string>* differences) {
  const ReportJson* const before = MemberOf(first, section);
  const ReportJson* const after = MemberOf(second, section);
  if (before == nullptr || after == nullptr || !before->is_object() || !after->is_object()) return;
  for (const auto& [name, value] : before->items()) {
    if (name == "date") continue;
    const ReportJson* const other = MemberOf(*after, name.c_str());
    if (other == nullptr || *other != value) {
      differences->push_back(fmt::format("{}: {}, {}", name, AsText(&value), AsText(other)));
    }
  }
  for (const auto& [name, value] : after->items()) {
    if (name == "date" || before->contains(name)) continue;
    differences->push_back(fmt::format("{}: {}, {}", name, AsText(nullptr), AsText(&value)));
  }
}

}  // namespace

absl::StatusOr<BenchComparison> CompareBench(std::string_view first_json, std::string_view first_name,
                                             std::string_view second_json, std::string_view second_name) {
  ASSIGN_OR_RETURN(const ReportJson first, ParseReport(first_json, first_name));
  ASSIGN_OR_RETURN(const ReportJson second, ParseReport(second_json, second_name));
  BenchComparison result;
  const std::map<std::string, const ReportJson*> others = PointsOf(second);
  for (const auto& [name, point] : PointsOf(first)) {
    const auto other = others.find(name);
    if (other == others.end()) continue;
    for (const MeasureName& measure : kMeasures) {
      const std::optional<Spread> before = SpreadIn(*point, measure.name);
      const std::optional<Spread> after = SpreadIn(*other->second, measure.name);
      if (!before || !after) continue;
      result.measures.push_back({.point = name,
                                 .measure = measure.name,
                                 .first = *before,
                                 .second = *after,
                                 .verdict = VerdictOf(*before, *after, measure.more_is_better)});
    }
  }
  if (result.measures.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{} and {} have no scenario and setting in common", first_name, second_name));
  }
  NoteDifferences(first, second, "data", &result.differences);
  NoteDifferences(first, second, "environment", &result.differences);
  NoteDifferences(first, second, "settings", &result.differences);
  return result;
}

}  // namespace millrace
