// These tests are about everything that a server or the network can do wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <latch>
#include <set>
#include <string>

#include "net/http_client.h"
#include "net/testing/http_client_fixture.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

TEST_F(HttpClientTest, ACutAtAnyByteIsNoticed) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n";
  const std::string chunked_head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string body = Pattern(20);
  for (const bool chunked : {false, true}) {
    const std::string answer =
        chunked ? chunked_head + "a\r\n" + body.substr(0, 10) + "\r\na\r\n" + body.substr(10) + "\r\n0\r\n\r\n"
                : head + body;
    const size_t head_size = chunked ? chunked_head.size() : head.size();
    ScriptedServer server([&](ScriptedConnection& connection) {
      connection.ReadRequest();
      connection.Send(answer.substr(0, static_cast<size_t>(connection.number())));
    });
    HttpClient& client = Client();
    for (size_t cut = 0; cut < answer.size(); ++cut) {
      std::string buffer(body.size(), '\0');
      uint64_t told = 0;
      Caller caller;
      caller.sink = [&] {
        return HttpBodySink::Into(AsWritableBytes(buffer), 0, [&](uint64_t bytes) { told = bytes; });
      };
      Start(client, Request(server), caller);
      const Outcome outcome = caller.Wait();
      EXPECT_EQ(outcome.result.error, HttpErrorKind::kClosedEarly) << cut;
      EXPECT_EQ(outcome.head.has_value(), cut >= head_size) << cut;
      if (!chunked) {
        EXPECT_EQ(outcome.result.body_bytes, cut < head_size ? 0 : cut - head_size);
      }
      EXPECT_EQ(told, outcome.result.body_bytes) << cut;
      EXPECT_EQ(buffer.substr(0, outcome.result.body_bytes), body.substr(0, outcome.result.body_bytes));
    }
  }
}

TEST_F(HttpClientTest, AResetAtAnyByteIsNoticed) {
  const std::string answer = WithLength(Pattern(20));
  ScriptedServer server([&](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send(answer.substr(0, static_cast<size_t>(connection.number())));
    connection.Reset();
  });
  HttpClient& client = Client();
  for (size_t cut = 0; cut < answer.size(); ++cut) {
    EXPECT_EQ(Run(client, Request(server)).result.error, HttpErrorKind::kReset) << cut;
  }
}

TEST_F(HttpClientTest, AKeptConnectionThatDiesIsReportedAsStale) {
  // Answers one request on each connection; the first connection is closed when the second request is there.
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send(WithLength("ok"));
    connection.ReadRequest();
    if (connection.number() > 0) connection.Send(WithLength("again"));
  });
  HttpClient& client = Client();
  EXPECT_EQ(Run(client, Request(server)).result.text, "ok");
  EXPECT_EQ(Run(client, Request(server)).result.error, HttpErrorKind::kStale);
  HttpRequest request = Request(server);
  request.fresh_connection = true;
  EXPECT_EQ(Run(client, std::move(request)).result.text, "ok");
  EXPECT_EQ(Run(client, Request(server)).result.text, "again");
}

TEST_F(HttpClientTest, AFreshConnectionIsMadeEvenWhenTheLimitIsReached) {
  ScriptedServer server(Answer(WithLength("ok")));
  HttpClient& client = Client({.max_connections = 1});
  EXPECT_EQ(Run(client, Request(server)).result.text, "ok");
  HttpRequest request = Request(server);
  request.fresh_connection = true;
  EXPECT_EQ(Run(client, std::move(request)).result.text, "ok");
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(HttpClientTest, AConnectionKnownToBeClosedIsNotUsed) {
  ScriptedServer server([](ScriptedConnection& connection) {
    while (!connection.ReadRequest().empty()) {
      connection.Send(WithLength("ok"));
      if (connection.number() == 0) return;
    }
  });
  HttpClient& client = Client();
  EXPECT_EQ(Run(client, Request(server)).result.text, "ok");
  // The FIN is on its way; whether it is seen at once or only by the read, a request is never lost silently.
  const Outcome outcome = Run(client, Request(server));
  EXPECT_TRUE(outcome.result.error == HttpErrorKind::kNone || outcome.result.error == HttpErrorKind::kStale);
  EXPECT_EQ(Run(client, Request(server)).result.error, HttpErrorKind::kNone);
}

TEST_F(HttpClientTest, MalformedResponses) {
  HttpClient& client = Client();
  for (const std::string& answer :
       {std::string("SSH-2.0-OpenSSH\r\n\r\n"), "HTTP/1.1 200 OK\r\nA: " + std::string(70'000, 'x') + "\r\n\r\n",
        std::string(70'000, 'x'), std::string("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")}) {
    ScriptedServer server([&](ScriptedConnection& connection) {
      connection.ReadRequest();
      connection.Send(answer);
      connection.WaitForClose();
    });
    EXPECT_EQ(Run(client, Request(server)).result.error, HttpErrorKind::kMalformed) << answer.substr(0, 50);
  }
  std::string endless;
  for (int i = 0; i < 20; ++i) endless += "HTTP/1.1 100 Continue\r\n\r\n";
  ScriptedServer server(Answer(endless + WithLength("ok")));
  EXPECT_EQ(Run(client, Request(server)).result.error, HttpErrorKind::kMalformed);
}

TEST_F(HttpClientTest, AnAnswerMayComeBeforeTheRequestIsSent) {
  // The server reads only the head of a request that is larger than all socket buffers, and keeps the connection open.
  std::latch done(1);
  ScriptedServer server([&](ScriptedConnection& connection) {
    connection.ReadSome(10);
    connection.Send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    done.wait();
  });
  const std::string body(32 << 20, 'x');
  HttpRequest request = Request(server, "PUT");
  request.body = AsBytes(body);
  const Outcome outcome = Run(Client(), std::move(request));
  done.count_down();
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
  ASSERT_TRUE(outcome.head.has_value());
  EXPECT_EQ(outcome.head->status, 403);
  EXPECT_EQ(outcome.result.text, "no");
}

TEST_F(HttpClientTest, LargeBodiesAreSentWhole) {
  const std::string body = Pattern(2 << 20);
  std::promise<std::string> received;
  ScriptedServer server([&](ScriptedConnection& connection) {
    received.set_value(connection.ReadRequest());
    connection.Send(WithLength("ok"));
    connection.WaitForClose();
  });
  HttpRequest request = Request(server, "PUT");
  request.body = AsBytes(body);
  EXPECT_EQ(Run(Client(), std::move(request)).result.text, "ok");
  const std::string request_text = received.get_future().get();
  EXPECT_TRUE(request_text.ends_with(body));
}

TEST_F(HttpClientTest, RefusedConnections) {
  // A bound socket that does not listen keeps its port from being used by others.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  HttpRequest request;
  request.endpoint = {"127.0.0.1", ntohs(address.sin_port), false};
  request.head = {"GET", "/", {}};
  const Outcome outcome = Run(Client(), std::move(request));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kConnect);
  EXPECT_THAT(outcome.result.detail, ::testing::HasSubstr("refused"));
  ::close(fd);
}

TEST_F(HttpClientTest, UnknownHosts) {
  HttpRequest request;
  request.endpoint = {"no-such-host.invalid", 80, false};
  request.head = {"GET", "/", {}};
  EXPECT_EQ(Run(Client(), std::move(request)).result.error, HttpErrorKind::kConnect);
}

TEST_F(HttpClientTest, NamesAreResolved) {
  ScriptedServer server(Answer(WithLength("ok")));
  HttpClient& client = Client();
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 4; ++i) {
    callers.push_back(std::make_unique<Caller>());
    Start(client, Request(server, "GET", "localhost"), *callers.back());
  }
  for (const auto& caller : callers) EXPECT_EQ(caller->Wait().result.text, "ok");
}

TEST_F(HttpClientTest, NoFirstByteInTime) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  const Outcome outcome = Run(Client({.first_byte_timeout = milliseconds(20)}), Request(server));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kTimeout);
  EXPECT_THAT(outcome.result.detail, ::testing::HasSubstr("no response within 20 ms"));
}

TEST_F(HttpClientTest, ARequestMayExtendItsTimeouts) {
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    if (connection.number() % 2 == 1) connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n12345");
    connection.WaitForClose();
  });
  HttpClient& client = Client({.first_byte_timeout = milliseconds(5), .stall_timeout = milliseconds(6)});
  std::set<std::string> details;
  // On a busy machine, what is sent may come too late; then another connection sends it again.
  for (int i = 0; i < 40 && details.size() < 2; ++i) {
    HttpRequest request = Request(server);
    request.extra_timeout = milliseconds(1000);
    const auto begin = std::chrono::steady_clock::now();
    details.insert(Run(client, std::move(request)).result.detail);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(1000));
  }
  EXPECT_THAT(details,
              ::testing::ElementsAre("no byte of the response's body within 1006 ms", "no response within 1005 ms"));
}

TEST_F(HttpClientTest, ABodyThatStalls) {
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n12345");
    connection.WaitForClose();
  });
  std::string buffer(20, '\0');
  const Outcome outcome = RunInto(Client({.stall_timeout = milliseconds(20)}), Request(server), buffer);
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kTimeout);
  EXPECT_EQ(outcome.result.body_bytes, 5u);
  EXPECT_EQ(buffer.substr(0, 5), "12345");
}

TEST_F(HttpClientTest, AServerThatTakesNoRequest) {
  std::latch done(1);
  ScriptedServer server([&](ScriptedConnection& connection) {
    connection.ReadSome(1);
    done.wait();
  });
  const std::string body(32 << 20, 'x');
  HttpRequest request = Request(server, "PUT");
  request.body = AsBytes(body);
  const Outcome outcome = Run(Client({.stall_timeout = milliseconds(50)}), std::move(request));
  done.count_down();
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kTimeout);
  EXPECT_THAT(outcome.result.detail, ::testing::HasSubstr("took no byte of the request"));
}

TEST_F(HttpClientTest, IdleConnectionsAreClosed) {
  std::promise<void> closed;
  ScriptedServer server([&](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send(WithLength("ok"));
    connection.WaitForClose();
    closed.set_value();
  });
  EXPECT_EQ(Run(Client({.keep_idle = milliseconds(1)}), Request(server)).result.text, "ok");
  closed.get_future().wait();
}

}  // namespace
}  // namespace millrace
