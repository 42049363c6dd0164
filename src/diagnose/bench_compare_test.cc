#include "diagnose/bench_compare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Verdict = ComparedMeasure::Verdict;

std::string SpreadText(double least, double median, double most) {
  return fmt::format(R"({{"least": {}, "median": {}, "most": {}}})", least, median, most);
}

std::string Report(const std::string& rate, const std::string& cpu, const std::string& machine = "A") {
  return fmt::format(
      R"({{"bench_format": 1, "environment": {{"cpu": "{}", "date": "{}"}}, "scenarios": {{"d": {{"points": [
        {{"name": "2 threads", "samples_per_second": {}, "cpu_seconds_per_1000_samples": {}}}]}}}}}})",
      machine, machine, rate, cpu);
}

TEST(BenchCompare, VerdictsFollowTheSpread) {
  const auto result = CompareBench(Report(SpreadText(90, 100, 110), SpreadText(1, 1, 1)), "a",
                                   Report(SpreadText(105, 120, 130), SpreadText(2, 2, 2)), "b");
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->measures.size(), 2U);
  EXPECT_EQ(result->measures[0].point, "d, 2 threads");
  EXPECT_EQ(result->measures[0].verdict, Verdict::kSame);  // 105 to 110 may be either
  EXPECT_DOUBLE_EQ(result->measures[0].ratio(), 1.2);
  EXPECT_EQ(result->measures[1].verdict, Verdict::kWorse);  // more CPU
  EXPECT_TRUE(result->differences.empty());
  const auto faster = CompareBench(Report(SpreadText(90, 100, 110), SpreadText(2, 2, 2)), "a",
                                   Report(SpreadText(111, 120, 130), SpreadText(1, 1, 1)), "b");
  EXPECT_EQ(faster->measures[0].verdict, Verdict::kBetter);
  EXPECT_EQ(faster->measures[1].verdict, Verdict::kBetter);
}

TEST(BenchCompare, OtherMachinesAreNoted) {
  const std::string spread = SpreadText(1, 1, 1);
  const auto result = CompareBench(Report(spread, spread, "A"), "a", Report(spread, spread, "B"), "b");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->differences, testing::ElementsAre("cpu: A, B"));  // dates always differ
}

TEST(BenchCompare, WhatOnlyOneReportTellsIsNoted) {
  const std::string spread = SpreadText(1, 1, 1);
  std::string more = Report(spread, spread);
  more.replace(more.find("\"cpu\""), 5, "\"kernel\": \"6.1\", \"cpu\"");
  const std::string less = Report(spread, spread);
  EXPECT_THAT(CompareBench(more, "a", less, "b")->differences, testing::ElementsAre("kernel: 6.1, -"));
  EXPECT_THAT(CompareBench(less, "a", more, "b")->differences, testing::ElementsAre("kernel: -, 6.1"));
}

TEST(BenchCompare, WhatIsNoReportIsRefused) {
  const std::string good = Report(SpreadText(1, 1, 1), SpreadText(1, 1, 1));
  for (const char* bad : {"", "{}", "[]", R"({"bench_format": 2})"}) {
    const auto result = CompareBench(good, "a.json", bad, "b.json");
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << bad;
    EXPECT_THAT(result.status().message(), HasSubstr("b.json"));
  }
  for (const char* strange :
       {R"({"bench_format": 1})", R"({"bench_format": 1, "scenarios": {"d": 1, "e": {"points": 1}}})",
        R"({"bench_format": 1, "scenarios": {"d": {"points": [1, {"name": 3}]}}})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CompareBench(strange, "a", good, "b").status())) << strange;
    EXPECT_TRUE(absl::IsInvalidArgument(CompareBench(good, "a", strange, "b").status())) << strange;
  }
}

}  // namespace
}  // namespace millrace
