#include "net/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "net/metrics_scraper.h"
#include "net/testing/http_server_fixture.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<MetricsServer> Serve(MetricsServer::Collect collect) {
  auto server = MetricsServer::Start({}, std::move(collect));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string Ask(uint16_t port, const std::string& request) {
  RawClient client(port);
  client.Send(request + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  return client.ReadAll();
}

TEST(MetricsServer, AnswersWithTheValuesOfNow) {
  double value = 0;
  const auto server = Serve([&value](MetricsText* text) { text->Counter("calls_total", "Calls.", {}, ++value); });
  EXPECT_EQ(server->url(), "http://127.0.0.1:" + std::to_string(server->port()) + "/metrics");
  const std::string first = Ask(server->port(), "GET /metrics");
  EXPECT_THAT(first, HasSubstr(" 200 "));
  EXPECT_THAT(first, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(first, HasSubstr("calls_total 1\n"));
  EXPECT_THAT(Ask(server->port(), "GET /metrics?x=1"), HasSubstr("calls_total 2\n"));
  EXPECT_THAT(Ask(server->port(), "GET /"), HasSubstr("/metrics"));
  EXPECT_THAT(Ask(server->port(), "GET /other"), HasSubstr(" 404 "));
  EXPECT_THAT(Ask(server->port(), "DELETE /metrics"), HasSubstr(" 405 "));
}

TEST(MetricsServer, ScraperReadsIt) {
  const auto server = Serve([](MetricsText* text) { text->Gauge("g", "x", {{"a", "b"}}, 4); });
  Scraper scraper;
  const std::vector<MetricsAddress> places = {{.port = server->port()}, {.port = 1}, {.port = server->port()}};
  for (int i = 0; i < 3; ++i) {
    const auto pages = scraper.Read(places);
    ASSERT_EQ(pages.size(), 3U);
    ASSERT_TRUE(pages[0].ok()) << pages[0].status();
    EXPECT_EQ((*pages[2])[0].value, 4);
    EXPECT_TRUE(absl::IsUnavailable(pages[1].status()));
    EXPECT_THAT(std::string(pages[1].status().message()), HasSubstr("127.0.0.1:1 does not answer"));
  }
}

// C10: connections that ask for nothing keep nobody from the metrics.
TEST(MetricsServer, ConnectionsAreBounded) {
  const auto server = Serve([](MetricsText* text) { text->Gauge("g", "x", {}, 1); });
  std::vector<std::unique_ptr<RawClient>> idle;
  for (size_t i = 0; i < MetricsServer::kMaxConnections; ++i) {
    idle.push_back(std::make_unique<RawClient>(server->port()));
    ASSERT_TRUE(idle.back()->connected());
  }
  EXPECT_EQ(idle[0]->ReadAll(), "");  // it made room
  EXPECT_THAT(Ask(server->port(), "GET /metrics"), HasSubstr("g 1\n"));
}

TEST(MetricsServer, PortInUse) {
  const auto server = Serve([](MetricsText*) {});
  const auto other = MetricsServer::Start({.port = server->port()}, [](MetricsText*) {});
  EXPECT_TRUE(absl::IsAlreadyExists(other.status()));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("the port is in use"));
}

TEST(MetricsAddress, PortOrHostAndPort) {
  EXPECT_EQ(ParseMetricsAddress("9400")->host, "127.0.0.1");
  EXPECT_EQ(ParseMetricsAddress("9400")->port, 9400);
  EXPECT_EQ(ParseMetricsAddress("0.0.0.0:0")->host, "0.0.0.0");
  EXPECT_EQ(ParseMetricsAddress("[::1]:80")->host, "::1");
  for (const char* bad : {"", "x", "65536", "-1", ":80", "::1:80", "a b:1", "http://h:1", "h:"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseMetricsAddress(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace millrace
