#include "job/run_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const RunMetrics& metrics) {
  MetricsText text;
  metrics.Collect(&text);
  return text.Text();
}

TEST(RunMetrics, HangsAndTheEndOfTheJob) {
  RunMetrics metrics;
  metrics.OnEvent("start", {{"attempts", int64_t{1}}});
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_hangs_total 0\n"));
  for (const char* kind : {"interruption", "maintenance", "scale-in", "rebalance", "signal"}) {
    const std::string line = std::string("\nmillrace_run_notices_total{kind=\"") + kind + "\"} ";
    EXPECT_THAT(TextOf(metrics), HasSubstr(line + "0\n")) << "so that the first notice is an increase";
  }
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_ended{outcome=\"failure\"} 0\n"));
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr("end_timestamp")));
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_alive_timestamp_seconds "));
  metrics.OnEvent("attempt-end", {{"seconds", 1.5}, {"status", int64_t{124}}, {"hang", true}});
  metrics.OnEvent("end", {{"outcome", std::string("failure")}});
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_hangs_total 1\n"));
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_ended{outcome=\"failure\"} 1\n"));
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_ended{outcome=\"success\"} 0\n"));
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_end_timestamp_seconds "));
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr("alive_timestamp")));
}

TEST(RunMetrics, CountsTheEventsOfTheJournal) {
  RunMetrics metrics;
  metrics.OnEvent("start", {{"attempts", int64_t{4}}});
  metrics.OnEvent("attempt-start", {});
  EXPECT_THAT(TextOf(metrics), HasSubstr("\nmillrace_run_command_running 1\n"));
  metrics.OnEvent("attempt-end", {{"seconds", 1.5}, {"status", int64_t{3}}, {"reason", std::string("Hang")}});
  metrics.OnEvent("restart", {});
  metrics.OnEvent("notice", {{"kind", std::string("interruption")}});
  metrics.OnEvent("attempt-start", {});
  metrics.OnEvent("attempt-end", {{"seconds", 2.0}, {"status", int64_t{0}}});
  const std::string text = TextOf(metrics);
  for (const char* line :
       {"millrace_run_command_running 0", "millrace_run_attempts_allowed 4", "millrace_run_attempts_total 2",
        "millrace_run_restarts_total 1", "millrace_run_attempt_seconds_total 3.5",
        "millrace_run_attempt_ends_total{reason=\"Hang\"} 1", "millrace_run_attempt_ends_total{reason=\"success\"} 1",
        "millrace_run_notices_total{kind=\"interruption\"} 1"})
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
}

TEST(RunMetrics, AFieldOfAnotherTypeIsUnknown) {
  RunMetrics metrics;
  metrics.OnEvent("notice", {{"kind", int64_t{1}}});
  EXPECT_THAT(TextOf(metrics), HasSubstr("{kind=\"unknown\"} 1"));
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr("attempt_ends")));
}

}  // namespace
}  // namespace millrace
