// These tests are about what a server takes from its clients: requests, bodies, heads.

#include "net/http_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "net/testing/http_server_fixture.h"

namespace millrace {
namespace {

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Serve(Echo);
  RawClient client(server_->port());
  client.Send(
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPUT /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
      "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = client.ReadAll();
  const size_t first = all.find("GET /1 ");
  const size_t second = all.find("PUT /2 hello");
  const size_t third = all.find("GET /3 ");
  ASSERT_NE(third, std::string::npos) << all;
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(all.find("Date: "), std::string::npos);
  EXPECT_NE(all.find("Connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, TakesRequestsByteByByte) {
  Serve(Echo);
  RawClient client(server_->port());
  for (const char c :
       std::string("POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                   "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: x\r\n\r\n")) {
    client.Send(std::string(1, c));
  }
  EXPECT_EQ(Body(client.ReadAll()), "POST /slow abcde");
}

TEST_F(HttpServerTest, StreamsLargeBodies) {
  Serve([](FunctionHandler::Request request, HttpResponder responder) {
    responder.Send(TextReply(std::to_string(std::hash<std::string>()(request.body))));
  });
  std::string body(5'000'000, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 7 >> 3);
  RawClient client(server_->port());
  client.Send(fmt::format("PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.size()));
  client.Send(body);
  EXPECT_EQ(Body(client.ReadAll()), std::to_string(std::hash<std::string>()(body)));
}

TEST_F(HttpServerTest, RefusesWhatIsNoRequest) {
  Serve(Echo);
  for (const std::string_view bad : {
           "nonsense\r\n\r\n",
           "GET / HTTP/2.0\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
           "GET / HTTP/1.1\r\nA\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
       }) {
    RawClient client(server_->port());
    client.Send(bad);
    EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 400 ")) << bad;
  }
  RawClient client(server_->port());
  client.Send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 400 "));
}

TEST_F(HttpServerTest, LimitsHeads) {
  Serve(Echo);
  {
    RawClient client(server_->port());
    client.Send("GET / HTTP/1.1\r\nX: " + std::string(70'000, 'x'));
    EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 431 "));
  }
  std::string head = "GET / HTTP/1.1\r\n";  // many short fields
  for (int i = 0; i < 10'000; ++i) head += "A: b\r\nC: d\r\n";
  for (const size_t first_piece : {head.size(), size_t{60'000}, size_t{5}}) {
    RawClient client(server_->port());
    client.Send(head.substr(0, first_piece));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // each piece is parsed by itself
    client.Send(head.substr(first_piece));
    EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 431 ")) << first_piece;
  }
}

TEST_F(HttpServerTest, SaysContinueOnlyToThoseWhoWait) {
  Serve(Echo);
  RawClient client(server_->port());
  client.Send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(handler_->LastFacts().expects_continue);
  client.Send("hi");
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
  EXPECT_EQ(client.ReadBytes(9), "PUT /a hi");
}

TEST_F(HttpServerTest, AnEarlyAnswerDropsTheRestOfTheBody) {
  Serve(Echo, [](const HttpRequestHead& head) -> std::optional<HttpReply> {
    if (head.target == "/no") return TextReply("refused", 403);
    return std::nullopt;
  });
  RawClient client(server_->port());
  // A short body is read and dropped: the connection lives.
  client.Send(
      "PUT /no HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789GET /yes HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.ReadUntil("refused").find("403 Forbidden"), std::string::npos);
  EXPECT_NE(client.ReadUntil("GET /yes ").find("200 OK"), std::string::npos);
  // A client that waits for 100 gets the answer instead.
  client.Send("PUT /no HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
  const std::string answer = client.ReadAll();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 403 ")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, AnEarlyAnswerToALongBodyClosesButArrives) {
  Serve(Echo, [](const HttpRequestHead&) -> std::optional<HttpReply> { return TextReply("refused", 403); });
  RawClient client(server_->port());
  client.Send("PUT /no HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
  client.Send(std::string(3'000'000, 'x'));
  EXPECT_NE(client.ReadAll().find("refused"), std::string::npos);
}

TEST_F(HttpServerTest, HeadGetsTheLengthAndNoBody) {
  ServeReply([] { return TextReply("four"); });
  RawClient client(server_->port());
  client.Send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 4\r\n"), std::string::npos);
  const std::string rest = client.ReadAll();
  EXPECT_TRUE(rest.starts_with("HTTP/1.1 200 OK")) << rest;
  EXPECT_EQ(Body(rest), "four");
}

TEST_F(HttpServerTest, KeepsControlCharactersOutOfHeads) {
  ServeReply([] {
    HttpReply reply = TextReply("");
    reply.headers.Add("X-Value", "a\r\nInjected: yes");
    return reply;
  });
  RawClient client(server_->port());
  client.Send("GET / HTTP/1.0\r\n\r\n");
  const std::string head = client.ReadAll();
  EXPECT_NE(head.find("X-Value: a  Injected: yes\r\n"), std::string::npos) << head;
}

}  // namespace
}  // namespace millrace
