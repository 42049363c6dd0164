#include "checkpoint/checkpoint_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "net/metrics_text.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

double Value(const CheckpointCounts& counts, const std::string& name) {
  MetricsText text;
  counts.Collect(&text);
  const auto samples = ParseMetrics(text.Text());
  EXPECT_TRUE(samples.ok()) << samples.status();
  for (const MetricSample& sample : *samples) {
    if (sample.name == name) return sample.value;
  }
  return -1;
}

TEST(CheckpointCounts, SavesAndFailures) {
  CheckpointCounts counts;
  EXPECT_EQ(Value(counts, "millrace_checkpoint_saves_total"), -1);  // this process saves none
  counts.Opened("s3://b/run");
  EXPECT_EQ(Value(counts, "millrace_checkpoint_save_failures_total"), 0) << "so that the first failure is an increase";
  EXPECT_EQ(Value(counts, "millrace_checkpoint_newest_timestamp_seconds"), -1) << "it may only read";
  counts.Claimed("s3://b/run");
  const double begun = Value(counts, "millrace_checkpoint_newest_timestamp_seconds");
  EXPECT_GT(begun, 1.7e9);
  EXPECT_EQ(Value(counts, "millrace_checkpoint_saves_total"), 0);
  { CheckpointCounts::Save save(counts, "s3://b/run"); }
  EXPECT_EQ(Value(counts, "millrace_checkpoint_save_failures_total"), 1);
  EXPECT_EQ(Value(counts, "millrace_checkpoint_newest_timestamp_seconds"), begun);
  {
    CheckpointCounts::Save save(counts, "s3://b/run");
    save.Committed();
  }
  EXPECT_EQ(Value(counts, "millrace_checkpoint_saves_total"), 1);
  EXPECT_EQ(Value(counts, "millrace_checkpoint_save_failures_total"), 1);
  EXPECT_GE(Value(counts, "millrace_checkpoint_newest_timestamp_seconds"), begun);
  EXPECT_EQ(Value(counts, "millrace_checkpoint_last_save_seconds"),
            Value(counts, "millrace_checkpoint_save_seconds_total"));
  MetricsText text;
  counts.Collect(&text);
  EXPECT_THAT(text.Text(), HasSubstr("millrace_checkpoint_saves_total{checkpoints=\"s3://b/run\"} 1\n"));
}

TEST(CheckpointCounts, ManyPlacesAreCountedTogether) {
  CheckpointCounts counts;
  for (size_t i = 0; i < CheckpointCounts::kMaxPlaces + 5; ++i) {
    CheckpointCounts::Save save(counts, "s3://b/" + std::to_string(i));
    save.Committed();
  }
  MetricsText text;
  counts.Collect(&text);
  EXPECT_THAT(text.Text(), HasSubstr("millrace_checkpoint_saves_total{checkpoints=\"others\"} 5\n"));
}

}  // namespace
}  // namespace millrace
