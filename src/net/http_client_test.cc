#include "net/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <latch>
#include <optional>

#include "net/testing/scripted_server.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

struct Outcome {
  HttpResult result;
  std::optional<HttpResponseHead> head;
  std::vector<HttpPhase> phases;
};

/// One call: where its body goes, and how it ended.
class Caller final : public HttpResponseHandler {
 public:
  std::function<HttpBodySink()> sink = [] { return HttpBodySink::Text(1 << 20); };
  std::function<void(HttpPhase)> on_phase = [](HttpPhase) {};
  std::shared_ptr<HttpCall> call;  // on the loop only

  Outcome Wait() { return done_.get_future().get(); }

  void OnPhase(HttpPhase phase) override {
    outcome_.phases.push_back(phase);
    on_phase(phase);
  }
  HttpBodySink OnHead(const HttpResponseHead& head) override {
    outcome_.head = head;
    return sink();
  }
  void OnDone(HttpResult result) override {
    outcome_.result = std::move(result);
    done_.set_value(std::move(outcome_));  // throws if it comes twice
  }

 private:
  Outcome outcome_;
  std::promise<Outcome> done_;
};

class HttpClientTest : public testing::Test {
 protected:
  HttpClient& Client(HttpClientOptions options = {}) { return client_.emplace(loops_, std::move(options)); }

  HttpRequest Request(const ScriptedServer& server, std::string method = "GET", std::string host = "127.0.0.1") {
    HttpRequest request;
    request.endpoint = {std::move(host), server.port(), false};
    request.head = {std::move(method), "/path?query", {}};
    request.head.headers.Add("Host", "test");
    return request;
  }

  void Start(HttpClient& client, HttpRequest request, Caller& caller) {
    loops_.at(0).Post([&client, &caller, this, request = std::move(request)]() mutable {
      caller.call = client.Start(loops_.at(0), std::move(request), caller);
    });
  }

  Outcome Run(HttpClient& client, HttpRequest request) {
    Caller caller;
    Start(client, std::move(request), caller);
    return caller.Wait();
  }

  /// Receives the body into `buffer`.
  Outcome RunInto(HttpClient& client, HttpRequest request, std::string& buffer, uint64_t skip = 0) {
    Caller caller;
    caller.sink = [&] { return HttpBodySink::Into({reinterpret_cast<std::byte*>(buffer.data()), buffer.size()}, skip); };
    Start(client, std::move(request), caller);
    return caller.Wait();
  }

  EventLoops loops_{1};
  std::optional<HttpClient> client_;
};

/// Sends `answer` to every request.
ScriptedServer::Script Answer(std::string answer) {
  return [answer = std::move(answer)](ScriptedConnection& connection) {
    while (!connection.ReadRequest().empty()) connection.Send(answer);
  };
}

std::string WithLength(std::string_view body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 7 % 26);
  return text;
}

TEST_F(HttpClientTest, SendsTheRequestAsGiven) {
  std::promise<std::string> received;
  ScriptedServer server([&](ScriptedConnection& connection) {
    received.set_value(connection.ReadRequest());
    connection.Send(WithLength("ok"));
    connection.WaitForClose();
  });
  HttpRequest request = Request(server, "PUT");
  request.head.headers.Add("X-Name", "value");
  request.body = AsBytes("the body");
  const Outcome outcome = Run(Client(), std::move(request));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone);
  EXPECT_EQ(outcome.result.text, "ok");
  EXPECT_EQ(received.get_future().get(),
            "PUT /path?query HTTP/1.1\r\nHost: test\r\nX-Name: value\r\nContent-Length: 8\r\n\r\nthe body");
  EXPECT_THAT(outcome.phases, ElementsAre(HttpPhase::kConnect, HttpPhase::kFirstByte, HttpPhase::kBody));
}

TEST_F(HttpClientTest, ReceivesABodyIntoTheBuffer) {
  const std::string body = Pattern(3'000'000);
  ScriptedServer server(Answer(WithLength(body)));
  std::string buffer(body.size(), '\0');
  const Outcome outcome = RunInto(Client(), Request(server), buffer);
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
  EXPECT_EQ(outcome.result.body_bytes, body.size());
  EXPECT_EQ(outcome.result.wire_bytes, body.size());
  EXPECT_FALSE(outcome.result.more);
  EXPECT_EQ(buffer, body);
}

TEST_F(HttpClientTest, KeepsConnections) {
  ScriptedServer server(Answer(WithLength("ok")));
  HttpClient& client = Client();
  for (int i = 0; i < 5; ++i) {
    const Outcome outcome = Run(client, Request(server));
    EXPECT_EQ(outcome.result.text, "ok");
    if (i > 0) {
      EXPECT_THAT(outcome.phases, ElementsAre(HttpPhase::kFirstByte, HttpPhase::kBody));
    }
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(HttpClientTest, ResponsesThatEndTheConnectionAreNotFollowedByAnother) {
  for (const std::string& answer : {std::string("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"),
                                    std::string("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"), WithLength("ok") + "extra"}) {
    ScriptedServer server(Answer(answer));
    HttpClient& client = Client();
    EXPECT_EQ(Run(client, Request(server)).result.text, "ok");
    EXPECT_EQ(Run(client, Request(server)).result.text, "ok");
    EXPECT_EQ(server.connections(), 2) << answer;
  }
}

TEST_F(HttpClientTest, BodiesOfEveryFraming) {
  HttpClient& client = Client();
  {
    ScriptedServer server(Answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmill\r\n4\r\nrace\r\n0\r\n\r\n"));
    EXPECT_EQ(Run(client, Request(server)).result.text, "millrace");
    std::string buffer(8, '\0');
    const Outcome outcome = RunInto(client, Request(server), buffer);
    EXPECT_EQ(buffer, "millrace");
    EXPECT_FALSE(outcome.result.more);
    EXPECT_EQ(server.connections(), 1);
  }
  {
    ScriptedServer server([](ScriptedConnection& connection) {
      connection.ReadRequest();
      connection.Send("HTTP/1.1 200 OK\r\n\r\nmillrace");
    });
    EXPECT_EQ(Run(client, Request(server)).result.text, "millrace");
    std::string exact(8, '\0');
    EXPECT_FALSE(RunInto(client, Request(server), exact).result.more);
    EXPECT_EQ(exact, "millrace");
  }
  {
    ScriptedServer server(Answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"));
    const Outcome outcome = Run(client, Request(server, "HEAD"));
    EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone);
    EXPECT_EQ(outcome.head->content_length, 100u);
    EXPECT_EQ(Run(client, Request(server, "HEAD")).result.error, HttpErrorKind::kNone);
    EXPECT_EQ(server.connections(), 1);
  }
  {
    ScriptedServer server(Answer("HTTP/1.1 204 No Content\r\n\r\n"));
    EXPECT_EQ(Run(client, Request(server, "DELETE")).head->status, 204);
    EXPECT_EQ(Run(client, Request(server, "DELETE")).head->status, 204);
    EXPECT_EQ(server.connections(), 1);
  }
}

TEST_F(HttpClientTest, InterimResponsesAreSkipped) {
  ScriptedServer server(Answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + WithLength("ok")));
  EXPECT_EQ(Run(Client(), Request(server)).result.text, "ok");
}

TEST_F(HttpClientTest, HeadAndBodyMayArriveInAnyPieces) {
  const std::string answer = WithLength("body");
  // Each connection sends the answer in two pieces, cut at its number; the second only when the client has had time to take the first.
  ScriptedServer server([&](ScriptedConnection& connection) {
    connection.ReadRequest();
    const size_t cut = static_cast<size_t>(connection.number()) + 1;
    for (char c : answer.substr(0, cut)) connection.Send({&c, 1});
    connection.Send(answer.substr(cut));
    connection.WaitForClose();
  });
  HttpClient& client = Client();
  for (size_t cut = 1; cut < answer.size(); ++cut) {
    HttpRequest request = Request(server);
    request.fresh_connection = true;
    std::string buffer(4, '\0');
    const Outcome outcome = RunInto(client, std::move(request), buffer);
    EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
    EXPECT_EQ(buffer, "body");
  }
}

TEST_F(HttpClientTest, SkipsAndStopsAsTheSinkSays) {
  const std::string body = Pattern(200'000);
  for (const std::string& head : {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n",
                                  std::string("HTTP/1.1 200 OK\r\n\r\n")}) {
    ScriptedServer server([&](ScriptedConnection& connection) {
      connection.ReadRequest();
      connection.Send(head + body);
    });
    HttpClient& client = Client();
    for (const uint64_t skip : {0, 1, 5'000, 150'000}) {
      std::string buffer(40'000, '\0');
      const Outcome outcome = RunInto(client, Request(server), buffer, skip);
      EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone);
      EXPECT_EQ(outcome.result.body_bytes, buffer.size());
      EXPECT_TRUE(outcome.result.more);
      EXPECT_EQ(buffer, body.substr(skip, buffer.size())) << skip;
    }
    std::string nothing;
    EXPECT_TRUE(RunInto(client, Request(server), nothing).result.more);
    EXPECT_EQ(server.connections(), 5);  // none could be kept
  }
}

TEST_F(HttpClientTest, TextHasALimit) {
  const std::string body = Pattern(100'000);
  ScriptedServer server(Answer(WithLength(body)));
  HttpClient& client = Client();
  for (const size_t limit : {size_t{0}, size_t{10}, body.size() - 1}) {
    Caller caller;
    caller.sink = [limit] { return HttpBodySink::Text(limit); };
    Start(client, Request(server), caller);
    const Outcome outcome = caller.Wait();
    EXPECT_EQ(outcome.result.error, HttpErrorKind::kTooLarge);
    EXPECT_EQ(outcome.result.text, body.substr(0, limit));
  }
  Caller caller;
  caller.sink = [&] { return HttpBodySink::Text(body.size()); };
  Start(client, Request(server), caller);
  EXPECT_EQ(caller.Wait().result.text, body);
}

TEST_F(HttpClientTest, TheHandlerMayRefuse) {
  ScriptedServer server(Answer(WithLength("ok")));
  HttpClient& client = Client();
  Caller caller;
  caller.sink = [] { return HttpBodySink::Refuse(); };
  Start(client, Request(server), caller);
  EXPECT_EQ(caller.Wait().result.error, HttpErrorKind::kRefused);
  EXPECT_EQ(Run(client, Request(server)).result.text, "ok");
}

// ---- Failures

TEST_F(HttpClientTest, ACutAtAnyByteIsNoticed) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n";
  const std::string chunked_head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string body = Pattern(20);
  for (const bool chunked : {false, true}) {
    const std::string answer = chunked ? chunked_head + "a\r\n" + body.substr(0, 10) + "\r\na\r\n" + body.substr(10) + "\r\n0\r\n\r\n" : head + body;
    const size_t head_size = chunked ? chunked_head.size() : head.size();
    ScriptedServer server([&](ScriptedConnection& connection) {
      connection.ReadRequest();
      connection.Send(answer.substr(0, static_cast<size_t>(connection.number())));
    });
    HttpClient& client = Client();
    for (size_t cut = 0; cut < answer.size(); ++cut) {
      std::string buffer(body.size(), '\0');
      const Outcome outcome = RunInto(client, Request(server), buffer);
      EXPECT_EQ(outcome.result.error, HttpErrorKind::kClosedEarly) << cut;
      EXPECT_EQ(outcome.head.has_value(), cut >= head_size) << cut;
      if (!chunked) {
        EXPECT_EQ(outcome.result.body_bytes, cut < head_size ? 0 : cut - head_size);
      }
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
       {std::string("SSH-2.0-OpenSSH\r\n\r\n"), "HTTP/1.1 200 OK\r\nA: " + std::string(70'000, 'x') + "\r\n\r\n", std::string(70'000, 'x'),
        std::string("HTTP/1.1 101 Switching Protocols\r\n\r\n"), std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")}) {
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
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadSome(10);
    connection.Send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    connection.WaitForClose();
  });
  const std::string body(64 << 20, 'x');
  HttpRequest request = Request(server, "PUT");
  request.body = AsBytes(body);
  const Outcome outcome = Run(Client(), std::move(request));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
  EXPECT_EQ(outcome.head->status, 403);
  EXPECT_EQ(outcome.result.text, "no");
}

TEST_F(HttpClientTest, LargeBodiesAreSentWhole) {
  const std::string body = Pattern(8 << 20);
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
  EXPECT_THAT(outcome.result.detail, testing::HasSubstr("refused"));
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
  EXPECT_THAT(outcome.result.detail, testing::HasSubstr("no response within 20 ms"));
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
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadSome(1);
    // Reads no more until the client has given up: then the stream ends, after what the kernel holds.
    connection.Send("HTTP/1.1 ");
    connection.WaitForClose();
  });
  const std::string body(64 << 20, 'x');
  HttpRequest request = Request(server, "PUT");
  request.body = AsBytes(body);
  const Outcome outcome = Run(Client({.first_byte_timeout = milliseconds(50), .stall_timeout = milliseconds(50)}), std::move(request));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kTimeout);
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

// ---- Limits and cancelling

TEST_F(HttpClientTest, CallsBeyondTheLimitWaitInOrder) {
  std::vector<std::string> order;
  ScriptedServer server([&](ScriptedConnection& connection) {
    for (;;) {
      const std::string request = connection.ReadRequest();
      if (request.empty()) return;
      order.push_back(request.substr(4, 2));
      connection.Send(WithLength("ok"));
    }
  });
  HttpClient& client = Client({.max_connections = 1});
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 5; ++i) {
    callers.push_back(std::make_unique<Caller>());
    HttpRequest request = Request(server);
    request.head.target = "/" + std::to_string(i);
    Start(client, std::move(request), *callers.back());
  }
  for (size_t i = 0; i < callers.size(); ++i) {
    const Outcome outcome = callers[i]->Wait();
    EXPECT_EQ(outcome.result.text, "ok");
    EXPECT_EQ(outcome.phases.front(), i == 0 ? HttpPhase::kConnect : HttpPhase::kQueued);
  }
  EXPECT_EQ(server.connections(), 1);
  EXPECT_THAT(order, ElementsAre("/0", "/1", "/2", "/3", "/4"));
}

TEST_F(HttpClientTest, WaitingCallsGoOnWhenAConnectionBreaks) {
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    if (connection.number() % 2 == 1) connection.Send(WithLength("ok"));
  });
  HttpClient& client = Client({.max_connections = 1});
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 6; ++i) {
    callers.push_back(std::make_unique<Caller>());
    HttpRequest request = Request(server);
    request.fresh_connection = true;
    Start(client, std::move(request), *callers.back());
  }
  for (size_t i = 0; i < callers.size(); ++i) {
    EXPECT_EQ(callers[i]->Wait().result.error, i % 2 == 0 ? HttpErrorKind::kClosedEarly : HttpErrorKind::kNone) << i;
  }
}

TEST_F(HttpClientTest, CancelAtEveryPhase) {
  // Sends half a body and waits.
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n12345");
    connection.WaitForClose();
  });
  for (const HttpPhase phase : {HttpPhase::kConnect, HttpPhase::kFirstByte, HttpPhase::kBody}) {
    HttpClient& client = Client();
    Caller caller;
    std::string buffer(20, '\0');
    caller.sink = [&] { return HttpBodySink::Into({reinterpret_cast<std::byte*>(buffer.data()), buffer.size()}); };
    caller.on_phase = [&](HttpPhase reached) {
      if (reached == phase) loops_.at(0).Post([&] { caller.call->Cancel(); });
    };
    Start(client, Request(server), caller);
    EXPECT_EQ(caller.Wait().result.error, HttpErrorKind::kCancelled);
    std::latch again(1);
    loops_.at(0).Post([&] {
      caller.call->Cancel();  // harmless
      again.count_down();
    });
    again.wait();
  }
}

TEST_F(HttpClientTest, CancelWhileQueued) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  HttpClient& client = Client({.max_connections = 1});
  Caller first;
  Caller second;
  Start(client, Request(server), first);
  Start(client, Request(server), second);
  loops_.at(0).Post([&] { second.call->Cancel(); });
  EXPECT_EQ(second.Wait().result.error, HttpErrorKind::kCancelled);
  loops_.at(0).Post([&] { first.call->Cancel(); });
  EXPECT_EQ(first.Wait().result.error, HttpErrorKind::kCancelled);
}

TEST_F(HttpClientTest, TheDestructorCancelsEverything) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  HttpClient& client = Client({.max_connections = 2});
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 5; ++i) {
    callers.push_back(std::make_unique<Caller>());
    Start(client, Request(server), *callers.back());
  }
  client_.reset();
  for (const auto& caller : callers) EXPECT_EQ(caller->Wait().result.error, HttpErrorKind::kCancelled);
}

// ---- TLS

class HttpClientTlsTest : public HttpClientTest {
 protected:
  HttpClientTlsTest() : tls_(*MakeThrowawayTls("127.0.0.1")) {
    std::ofstream(ca_file_) << tls_.ca_pem;
  }
  ~HttpClientTlsTest() override { std::remove(ca_file_.c_str()); }

  HttpRequest TlsRequest(const ScriptedServer& server, std::string host = "127.0.0.1") {
    HttpRequest request = Request(server, "GET", std::move(host));
    request.endpoint.tls = true;
    return request;
  }

  const ThrowawayTls tls_;
  const std::string ca_file_ = testing::TempDir() + "/ca-" + std::to_string(::getpid()) + ".pem";
};

TEST_F(HttpClientTlsTest, BodiesArriveWholeAndConnectionsAreKept) {
  const std::string body = Pattern(1'000'000);
  ScriptedServer server(Answer(WithLength(body)), &tls_.server);
  HttpClient& client = Client({.ca_file = ca_file_});
  for (const char* host : {"127.0.0.1", "127.0.0.1", "localhost"}) {
    std::string buffer(body.size(), '\0');
    const Outcome outcome = RunInto(client, TlsRequest(server, host), buffer);
    EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
    EXPECT_EQ(buffer, body);
  }
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(HttpClientTlsTest, AnUnknownAuthorityIsNotTrusted) {
  ScriptedServer server(Answer(WithLength("secret")), &tls_.server);
  const Outcome outcome = Run(Client(), TlsRequest(server));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kTls);
  EXPECT_THAT(outcome.result.detail, testing::HasSubstr("not trusted"));
}

TEST_F(HttpClientTlsTest, AnotherHostsCertificateIsNotTrusted) {
  ScriptedServer server(Answer(WithLength("secret")), &tls_.server);
  // "127.1" is 127.0.0.1 to the resolver, but not the certificate's name.
  EXPECT_EQ(Run(Client({.ca_file = ca_file_}), TlsRequest(server, "127.1")).result.error, HttpErrorKind::kTls);
}

TEST_F(HttpClientTlsTest, AMissingCaFileIsSaid) {
  ScriptedServer server(Answer(WithLength("ok")), &tls_.server);
  const Outcome outcome = Run(Client({.ca_file = "/no/such/file.pem"}), TlsRequest(server));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kTls);
  EXPECT_THAT(outcome.result.detail, testing::HasSubstr("/no/such/file.pem"));
  EXPECT_EQ(server.connections(), 0);
}

TEST_F(HttpClientTlsTest, AServerWithoutTls) {
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadSome(1);
    connection.Send("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  EXPECT_EQ(Run(Client(), TlsRequest(server)).result.error, HttpErrorKind::kTls);
}

TEST_F(HttpClientTlsTest, AHandshakeThatHangsOrIsCut) {
  ScriptedServer hangs([](ScriptedConnection& connection) { connection.WaitForClose(); });
  EXPECT_EQ(Run(Client({.connect_timeout = milliseconds(50)}), TlsRequest(hangs)).result.error, HttpErrorKind::kConnect);
  ScriptedServer cuts([](ScriptedConnection& connection) { connection.ReadSome(1); });
  EXPECT_EQ(Run(Client(), TlsRequest(cuts)).result.error, HttpErrorKind::kConnect);
}

TEST_F(HttpClientTlsTest, TheEndOfTheStreamMustBeAuthentic) {
  for (const bool authentic : {true, false}) {
    ScriptedServer server(
        [authentic](ScriptedConnection& connection) {
          connection.ReadRequest();
          connection.Send("HTTP/1.1 200 OK\r\n\r\nmillrace");
          if (!authentic) connection.Truncate();
        },
        &tls_.server);
    const Outcome outcome = Run(Client({.ca_file = ca_file_}), TlsRequest(server));
    EXPECT_EQ(outcome.result.error, authentic ? HttpErrorKind::kNone : HttpErrorKind::kClosedEarly) << outcome.result.detail;
    EXPECT_EQ(outcome.result.text, "millrace");
  }
}

TEST_F(HttpClientTlsTest, CancelInTheBody) {
  ScriptedServer server(
      [](ScriptedConnection& connection) {
        connection.ReadRequest();
        connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n12345");
        connection.WaitForClose();
      },
      &tls_.server);
  HttpClient& client = Client({.ca_file = ca_file_});
  Caller caller;
  auto buffer = std::make_unique<std::string>(20, '\0');
  caller.sink = [&] { return HttpBodySink::Into({reinterpret_cast<std::byte*>(buffer->data()), buffer->size()}); };
  caller.on_phase = [&](HttpPhase reached) {
    if (reached == HttpPhase::kBody) loops_.at(0).Post([&] { caller.call->Cancel(); });
  };
  Start(client, TlsRequest(server), caller);
  EXPECT_EQ(caller.Wait().result.error, HttpErrorKind::kCancelled);
  buffer.reset();  // a sanitizer would tell of a late write
}

}  // namespace
}  // namespace millrace
