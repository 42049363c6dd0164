// C10: clients that ask for nothing, or slowly, keep nobody else from a server.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "net/http_server.h"
#include "net/testing/http_server_fixture.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kAsk = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpServerTest, C10AHeadThatTricklesIsCutOff) {
  HttpServerOptions options;
  options.head_timeout = milliseconds(50);
  Serve(Echo, nullptr, std::move(options));
  std::optional<RawClient> kept;
  std::string answer;
  // On a busy machine the head may come too late.
  for (int i = 0; i < 1000 && answer.find("200 OK") == std::string::npos; ++i) {
    kept.emplace(server_->port());
    kept->Send(kAsk);
    answer = kept->ReadUntil("GET /1 ");
  }
  ASSERT_NE(answer.find("200 OK"), std::string::npos);
  RawClient silent(server_->port());
  RawClient trickles(server_->port());
  int sent = 0;
  for (; sent < 10'000 && trickles.IsOpen(); ++sent) {  // bytes move all the time
    trickles.Send(sent == 0 ? "GET / HTTP/1.1\r\nX: " : "x");
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_LT(sent, 10'000);
  EXPECT_EQ(silent.ReadAll(), "");
  // Between requests a connection may wait longer; then the next head has its time.
  kept->Send(kAsk);
  EXPECT_NE(kept->ReadUntil("GET /1 ").find("200 OK"), std::string::npos);
  kept->Send("GET /half");
  EXPECT_EQ(kept->ReadAll(), "");
}

TEST_F(HttpServerTest, C10ABodyThatNobodyWaitsForIsCutOff) {
  HttpServerOptions options;
  options.head_timeout = milliseconds(50);
  Serve(
      Echo, [](const HttpRequestHead&) -> std::optional<HttpReply> { return TextReply("refused", 401); },
      std::move(options));
  RawClient client(server_->port());
  client.Send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx");
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpServerTest, C10AHandshakeThatDoesNotComeIsCutOff) {
  const auto tls = MakeThrowawayTls("127.0.0.1");
  ASSERT_TRUE(tls.ok()) << tls.status();
  HttpServerOptions options;
  options.head_timeout = milliseconds(50);
  options.tls = tls->server;
  Serve(Echo, nullptr, std::move(options));
  RawClient client(server_->port());
  client.Send("\x16");  // of a record
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpServerTest, C10ConnectionsWithoutARequestMakeRoom) {
  for (const bool of_one_address : {true, false}) {
    HttpServerOptions options;
    (of_one_address ? options.max_per_address : options.max_connections) = 8;
    std::vector<HttpResponder> held;
    std::mutex mutex;
    Serve(
        [&](FunctionHandler::Request request, HttpResponder responder) {
          if (request.head.target != "/held") return responder.Send(TextReply("GET /1 at once"));
          const std::lock_guard lock(mutex);
          held.push_back(std::move(responder));
        },
        nullptr, std::move(options));
    RawClient waits(server_->port());  // on the one loop or the other
    waits.Send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
    RawClient kept(server_->port());
    kept.Send(kAsk);
    EXPECT_NE(kept.ReadUntil("GET /1 ").find("200 OK"), std::string::npos);
    kept.ReadBytes(7);
    std::vector<std::unique_ptr<RawClient>> flood;
    for (int i = 0; i < 100; ++i) {
      flood.push_back(std::make_unique<RawClient>(server_->port()));
      RawClient client(server_->port());
      client.Send(kAsk);
      EXPECT_NE(client.ReadUntil("GET /1 ").find("200 OK"), std::string::npos) << i;
    }
    for (int i = 0; i < 80; ++i) EXPECT_EQ(flood[static_cast<size_t>(i)]->ReadAll(), "");
    kept.Send(kAsk);  // it has asked before, and the flood has not
    EXPECT_NE(kept.ReadUntil("GET /1 ").find("200 OK"), std::string::npos);
    {
      const std::lock_guard lock(mutex);
      ASSERT_EQ(held.size(), 1u);
      held[0].Send(TextReply("at last"));
      held.clear();
    }
    EXPECT_NE(waits.ReadUntil("at last").find("200 OK"), std::string::npos);
    server_.reset();
  }
}

TEST_F(HttpServerTest, C10AConnectionThatMadeRoomIsClosedLater) {
  HttpServerOptions options;
  options.max_per_address = 8;
  options.close_delay = std::chrono::hours(1);
  Serve(Echo, nullptr, std::move(options));
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 40; ++i) {
    flood.push_back(std::make_unique<RawClient>(server_->port()));
    flood.back()->Send("GET /");
  }
  RawClient client(server_->port());
  client.Send(kAsk);
  EXPECT_NE(client.ReadUntil("GET /1 ").find("200 OK"), std::string::npos);
  for (const auto& each : flood) EXPECT_TRUE(each->IsOpen());
  server_.reset();
  for (const auto& each : flood) EXPECT_FALSE(each->IsOpen());
}

TEST_F(HttpServerTest, C10APeerThatTakesNoAnswersMakesRoom) {
  HttpServerOptions options;
  options.max_connections = 8;
  Serve(
      [](FunctionHandler::Request request, HttpResponder responder) {
        const bool is_large = request.head.target == "/large";
        responder.Send(TextReply(is_large ? std::string(16 << 20, 'x') : "small"));
      },
      nullptr, std::move(options));
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(std::make_unique<RawClient>(server_->port()));
    silent.back()->Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  std::string answer;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (answer.empty() && std::chrono::steady_clock::now() < end) {
    RawClient client(server_->port());
    client.Send(kAsk);
    answer = client.ReadUntil("small");
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_THAT(answer, ::testing::HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, C10OneMoreRequestThanConnectionsIsTurnedAway) {
  HttpServerOptions options;
  options.max_connections = 2;  // one on each loop
  std::vector<HttpResponder> held;
  std::mutex mutex;
  std::condition_variable came;
  Serve(
      [&](FunctionHandler::Request, HttpResponder responder) {
        const std::lock_guard lock(mutex);
        held.push_back(std::move(responder));
        came.notify_all();
      },
      nullptr, std::move(options));
  RawClient first(server_->port());
  first.Send(kAsk);
  RawClient second(server_->port());
  second.Send(kAsk);
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(came.wait_for(lock, std::chrono::minutes(3), [&] { return held.size() == 2; }));
  }
  RawClient third(server_->port());
  third.Send(kAsk);
  EXPECT_EQ(third.ReadAll(), "");
  const std::lock_guard lock(mutex);
  held.clear();
}

TEST_F(HttpServerTest, TellsWhoAsks) {
  Serve(Echo);
  RawClient client(server_->port());
  client.Send(kAsk);
  client.ReadUntil("GET /1 ");
  EXPECT_EQ(handler_->LastFacts().peer, "127.0.0.1");
}

}  // namespace
}  // namespace millrace
