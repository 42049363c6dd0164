#include "pipeline/loader_totals.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

/// A source whose report the test sets.
class ReportedSource : public BatchSource {
 public:
  absl::StatusOr<std::optional<Batch>> Next() override { return std::optional<Batch>(); }
  bool WaitReady(std::chrono::nanoseconds) override { return true; }
  LoaderReport report() const override { return told; }
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  uint64_t steps_per_epoch() const override { return 0; }
  uint64_t samples_per_epoch() const override { return 0; }

  LoaderReport told;

 private:
  std::vector<BatchShape> shapes_;
};

TEST(LoaderTotals, SumsStayWhenLoadersEnd) {
  LoaderTotals totals;
  ReportedSource first;
  first.told.samples = 10;
  first.told.stalls.elapsed = 2;
  first.told.stalls.seconds[static_cast<size_t>(StallCause::kBody)] = 0.5;
  first.told.cache = CacheReport{.hit_bytes = 3, .miss_bytes = 4, .requests = 5};
  first.told.workers = {{.worker = "a:1", .rows = 7, .failures = 1}};
  ReportedSource second = first;
  auto one = totals.Count("data", first);
  {
    const auto two = totals.Count("data", second);
    const LoaderTotals::Sum sum = totals.Sums().at("data");
    EXPECT_EQ(sum.open, 2U);
    EXPECT_EQ(sum.samples, 20U);
    second.told.samples = 30;  // what it did last counts, too
  }
  const LoaderTotals::Sum sum = totals.Sums().at("data");
  EXPECT_EQ(sum.open, 1U);
  EXPECT_EQ(sum.begun, 2U);
  EXPECT_EQ(sum.samples, 40U);
  EXPECT_EQ(sum.seconds, 4);
  EXPECT_EQ(sum.stall_seconds[static_cast<size_t>(StallCause::kBody)], 1);
  EXPECT_EQ(sum.cache.hit_bytes, 6U);
  EXPECT_EQ(sum.cache.requests, 10U);
  EXPECT_EQ(sum.workers.at("a:1").rows, 14U);
  EXPECT_EQ(sum.workers.at("a:1").failures, 2U);
  one.reset();
  EXPECT_EQ(totals.Sums().at("data").open, 0U);
  EXPECT_EQ(totals.Sums().at("data").samples, 40U);
}

double StallOf(const LoaderTotals::Sum& sum, StallCause cause) {
  return sum.stall_seconds[static_cast<size_t>(cause)];
}

TEST(LoaderTotals, WaitsOfTheProgramCountInPlaceOfThoseOfTheConsumer) {
  LoaderTotals totals;
  ReportedSource source;
  source.told.stalls.elapsed = 100;
  const auto waits = std::make_shared<ProgramWaits>("transform");
  auto entry = totals.Count("data", source, waits);
  const auto at = [start = std::chrono::steady_clock::now() - std::chrono::hours(1)](int seconds) {
    return start + std::chrono::seconds(seconds);
  };
  const auto wait = [&](bool for_work, int from, int to) {
    waits->Begin(for_work, at(from));
    waits->End(at(to));
  };
  auto& native = source.told.stalls.seconds;
  native[static_cast<size_t>(StallCause::kBody)] = 60;  // of the threads between, which does not matter yet
  waits->Call(at(0));
  wait(true, 1, 8);
  EXPECT_EQ(StallOf(totals.Sums().at("data"), StallCause::kBody), 0);
  EXPECT_EQ(totals.Sums().at("data").work_seconds.at("transform"), 7);
  EXPECT_EQ(totals.Sums().at("data").seconds, 8);
  native[static_cast<size_t>(StallCause::kBody)] += 1;
  native[static_cast<size_t>(StallCause::kDecode)] += 3;
  wait(false, 10, 14);
  LoaderTotals::Sum sum = totals.Sums().at("data");
  EXPECT_EQ(StallOf(sum, StallCause::kBody), 1);
  EXPECT_EQ(StallOf(sum, StallCause::kDecode), 3);
  native[static_cast<size_t>(StallCause::kBody)] += 2;
  wait(false, 14, 24);
  sum = totals.Sums().at("data");
  EXPECT_EQ(StallOf(sum, StallCause::kBody), 11);
  EXPECT_EQ(StallOf(sum, StallCause::kDecode), 3) << "what was counted stays";
  wait(false, 24, 25);  // the consumer has not waited meanwhile
  waits->Call(at(30));
  entry.reset();
  sum = totals.Sums().at("data");
  EXPECT_EQ(StallOf(sum, StallCause::kDecode), 4);
  EXPECT_EQ(sum.seconds, 30);
  EXPECT_EQ(sum.work_seconds.at("transform"), 7);
  entry = totals.Count("data", source, waits);  // time between two loaders is none of a loader
  waits->Call(at(50));
  waits->Call(at(51));
  EXPECT_EQ(totals.Sums().at("data").seconds, 31);
}

TEST(LoaderTotals, NamesAreBounded) {
  LoaderTotals totals;
  ReportedSource source;
  source.told.samples = 1;
  for (size_t i = 0; i < LoaderTotals::kMaxNames + 20; ++i) totals.Count("data-" + std::to_string(i), source);
  const auto sums = totals.Sums();
  EXPECT_EQ(sums.size(), LoaderTotals::kMaxNames + 1);
  EXPECT_EQ(sums.at(LoaderTotals::kOthers).samples, 20U);
}

}  // namespace
}  // namespace millrace
