#include "diagnose/prices.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string PricesFile() {
  const char* const source = std::getenv("MILLRACE_SOURCE_DIR");
  std::ifstream file(std::string(source == nullptr ? "." : source) + "/src/diagnose/prices.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Without(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  if (at != std::string::npos) text.replace(at, what.size(), with);
  return text;
}

TEST(Prices, BuiltInListIsDatedAndPricesRequests) {
  const PriceList& prices = BuiltInPrices();
  EXPECT_EQ(prices.date.size(), 10U);
  EXPECT_EQ(prices.from, "built in");
  RequestCounts million;
  million.get = 1'500'000;
  EXPECT_NEAR(prices.DollarsOf(million), 0.60, 1e-9);  // GETs of 1.5 million files
  million.list = 1'000'000;
  EXPECT_NEAR(prices.DollarsOf(million), 5.60, 1e-9);
}

TEST(Prices, MachinesAreFoundByName) {
  const auto machine = BuiltInPrices().FindMachine("ml.p3.2xlarge");
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->vcpus, 8);
  EXPECT_EQ(machine->gpus, 1);
  EXPECT_DOUBLE_EQ(machine->dollars_per_hour, 3.825);
  const auto none = BuiltInPrices().FindMachine("ml.p99");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(none.status().message(), HasSubstr("ml.p3.2xlarge"));
}

TEST(Prices, CurrentMachinesHaveDatesOfTheirOwn) {
  for (const char* const name :
       {"g5.xlarge", "g6.xlarge", "p4d.24xlarge", "p5.48xlarge", "trn1.32xlarge", "trn2.48xlarge", "c7i.24xlarge",
        "g5.8xlarge", "g5.16xlarge", "g5.24xlarge", "g6.24xlarge", "g6e.12xlarge", "p4de.24xlarge", "p5e.48xlarge",
        "p5en.48xlarge", "ml.g5.xlarge", "ml.g5.48xlarge", "ml.g6.12xlarge", "ml.p5.48xlarge"}) {
    const auto machine = BuiltInPrices().FindMachine(name);
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_GT(machine->date, BuiltInPrices().date) << name;
    EXPECT_EQ(machine->date.size(), 10U) << name;
  }
  EXPECT_EQ(BuiltInPrices().FindMachine("trn2.48xlarge")->dollars_per_hour, 0);  // not on demand
  EXPECT_EQ(BuiltInPrices().FindMachine("p5e.48xlarge")->dollars_per_hour, 0);
  EXPECT_EQ(BuiltInPrices().FindMachine("ml.p3.2xlarge")->date, BuiltInPrices().date);
}

TEST(Prices, EachMachineIsOnTheListOnceAndSageMakersCostsMore) {
  std::set<std::string> names;
  for (const MachinePrice& machine : BuiltInPrices().machines) {
    EXPECT_TRUE(names.insert(machine.name).second) << machine.name;
    if (!machine.name.starts_with("ml.")) continue;
    const auto plain = BuiltInPrices().FindMachine(std::string_view(machine.name).substr(3));
    if (!plain.ok()) continue;
    EXPECT_GT(machine.dollars_per_hour, plain->dollars_per_hour) << machine.name;
    EXPECT_EQ(machine.vcpus, plain->vcpus) << machine.name;
    EXPECT_EQ(machine.gpus, plain->gpus) << machine.name;
  }
}

TEST(Prices, OneFormatOfMoney) {
  EXPECT_EQ(DollarText(0), "$0");
  EXPECT_EQ(DollarText(0.0000072), "<$0.001");
  EXPECT_EQ(DollarText(0.0006), "$0.001");
  EXPECT_EQ(DollarText(0.1076), "$0.108");
  EXPECT_EQ(DollarText(1), "$1.00");
  EXPECT_EQ(DollarText(999.995), "$1,000.00");
  EXPECT_EQ(DollarText(1234567.891), "$1,234,567.89");
}

TEST(Prices, AnotherListReplacesIt) {
  const auto prices = ParsePrices(Without(PricesFile(), "\"get_per_million\": 0.4", "\"get_per_million\": 7"), "ours");
  ASSERT_TRUE(prices.ok()) << prices.status();
  EXPECT_EQ(prices->get_per_million, 7);
  EXPECT_EQ(prices->from, "ours");
}

TEST(Prices, WhatIsWrongIsNamed) {
  const std::string good = PricesFile();
  const auto why = [](const std::string& text) {
    const auto parsed = ParsePrices(text, "ours");
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << text;
    EXPECT_THAT(parsed.status().message(), HasSubstr("ours"));
    return std::string(ToStd(parsed.status().message()));
  };
  why("");
  why("[1]");
  why("{\"format\": 2}");
  EXPECT_THAT(why(Without(good, "\"date\"", "\"dated\"")), HasSubstr("\"date\""));
  EXPECT_THAT(why(Without(good, "\"get_per_million\": 0.4", "\"get_per_million\": -1")), HasSubstr("get_per_million"));
  EXPECT_THAT(why(Without(good, "\"get_per_million\": 0.4", "\"get_per_million\": \"1\"")),
              HasSubstr("get_per_million"));
  EXPECT_THAT(why(Without(good, "\"list_per_million\"", "\"lists\"")), HasSubstr("list_per_million"));
  EXPECT_THAT(why(Without(good, "\"vcpus\": 8", "\"vcpus\": 0")), HasSubstr("ml.p3.2xlarge"));
  EXPECT_THAT(why(Without(good, "\"listed_objects_per_second\": 5500", "\"listed_objects_per_second\": 0")),
              HasSubstr("greater than 0"));
}

TEST(Prices, FileThatIsMissing) {
  EXPECT_TRUE(absl::IsNotFound(ReadPrices("/nowhere/prices.json").status()));
  EXPECT_TRUE(ReadPrices("").ok());
}

}  // namespace
}  // namespace millrace
