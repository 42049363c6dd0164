#include "net/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

TEST(MetricsText, IsPrometheusFormat) {
  MetricsText text;
  text.Gauge("z", "Last.", {}, 0.5);
  text.Counter("a_total", "First.", {{"data", "s3://b/\"x\"\\\n"}, {"cause", "body"}}, 1);
  text.Counter("a_total", "First.", {{"data", "y"}, {"cause", "body"}}, 123456789);
  text.Counter("a_total", "First.", {{"data", "y"}, {"cause", "body"}}, 1);  // adds up
  EXPECT_EQ(text.Text(),
            "# HELP a_total First.\n# TYPE a_total counter\n"
            "a_total{data=\"s3://b/\\\"x\\\"\\\\\\n\",cause=\"body\"} 1\n"
            "a_total{data=\"y\",cause=\"body\"} 123456790\n"
            "# HELP z Last.\n# TYPE z gauge\nz 0.5\n");
}

TEST(MetricsText, ComesBack) {
  MetricsText text;
  text.Gauge("g", "x", {{"l", "a\"b\\c\nd,}= \xC3\xA9"}}, -1.25e-9);
  text.Gauge("g", "x", {{"l", "inf"}}, INFINITY);
  text.Gauge("g", "x", {{"l", "bad \xFF"}}, 9007199254740991);
  const auto samples = ParseMetrics(text.Text());
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 3U);
  std::map<std::string, double> values;
  for (const MetricSample& sample : *samples) {
    EXPECT_EQ(sample.name, "g");
    values[sample.labels.at("l")] = sample.value;
  }
  EXPECT_EQ(values.at("a\"b\\c\nd,}= \xC3\xA9"), -1.25e-9);
  EXPECT_TRUE(std::isinf(values.at("inf")));
  EXPECT_EQ(values.at("bad \xEF\xBF\xBD"), 9007199254740991);  // Prometheus refuses what is not UTF-8
}

TEST(MetricsText, ReadsWhatOthersWrite) {
  const auto samples = ParseMetrics(
      "# comment\n \t# another\n\n \nup 1\r\nhttp_requests_total{ method = \"post\" , code=\"200\", } 1027 "
      "1395066363000\nx NaN\n\tlast "
      "+Inf ");
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 4U);
  EXPECT_EQ((*samples)[1].labels.at("code"), "200");
  EXPECT_EQ((*samples)[1].value, 1027);
  EXPECT_TRUE(std::isnan((*samples)[2].value));
  EXPECT_EQ((*samples)[3].name, "last");  // blanks around a line mean nothing
}

TEST(MetricsText, RefusesOtherThings) {
  for (const char* bad : {"<html>", "a", "a{", "a{b} 1", "a{b=\"c} 1", "a{b=\"c\"} x", "a 1 2 3", "1a 2",
                          "a{b=\"c\" d=\"e\"} 1", "a 0x10", "a{b=\"\\"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseMetrics(bad).status())) << bad;
  }
  EXPECT_EQ(ParseMetrics("a 1\nb\n").status().message(), "line 2 is not a metric in Prometheus's text format");
}

}  // namespace
}  // namespace millrace
