#include "pipeline/loader_totals.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

/// A source whose report is what the test says.
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
