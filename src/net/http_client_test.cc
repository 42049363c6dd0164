#include "net/http_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <latch>
#include <utility>
#include <vector>

#include "net/testing/http_client_fixture.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

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

TEST_F(HttpClientTest, TellsWhatHasCome) {
  const std::string body = Pattern(3'000'000);
  for (const std::string& answer : {WithLength(body), "HTTP/1.1 200 OK\r\n\r\n" + body}) {
    ScriptedServer server([&](ScriptedConnection& connection) {
      connection.ReadRequest();
      connection.Send(answer);
    });
    std::string buffer(body.size(), '\0');
    std::vector<uint64_t> told;
    bool there = true;
    Caller caller;
    caller.sink = [&] {
      return HttpBodySink::Into(AsWritableBytes(buffer), 0, [&](uint64_t bytes) {
        told.push_back(bytes);
        there = there && buffer.compare(0, bytes, body, 0, bytes) == 0;
      });
    };
    Start(Client(), Request(server), caller);
    EXPECT_EQ(caller.Wait().result.error, HttpErrorKind::kNone);
    EXPECT_TRUE(there);
    EXPECT_GT(told.size(), body.size() / (256 * 1024));  // a little at a time
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_EQ(told.back(), body.size());
  }
}

// However much of a body is there: what else is to be done on the loop is done after each turn.
TEST_F(HttpClientTest, WhatHasComeIsReadInTurns) {
  const std::string body = Pattern(32 << 20);
  ScriptedServer server([&](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send(WithLength(body));
  });
  std::string buffer(body.size(), '\0');
  bool cancels = false;
  Caller caller;
  caller.sink = [&] {
    return HttpBodySink::Into(AsWritableBytes(buffer), 0, [&](uint64_t) {
      if (!std::exchange(cancels, true)) loops_.at(0).Post([&] { caller.call->Cancel(); });
    });
  };
  Start(Client(), Request(server), caller);
  const Outcome outcome = caller.Wait();
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kCancelled);
  EXPECT_GT(outcome.result.body_bytes, 0u);
  EXPECT_LE(outcome.result.body_bytes, 2u << 20);
}

TEST_F(HttpClientTest, FillsSeveralPlaces) {
  const std::string body = Pattern(1'000'000);
  const auto chunked = [](const std::string& text) {
    return fmt::format("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", text.size(),
                       text);
  };
  for (const std::string& answer : {WithLength(body), "HTTP/1.1 200 OK\r\n\r\n" + body, chunked(body)}) {
    // The places have one byte, or more than one read, and the last one has what is left.
    for (const uint64_t missing : {0, 3}) {
      ScriptedServer server([&](ScriptedConnection& connection) {
        connection.ReadRequest();
        connection.Send(answer);
      });
      std::string memory(body.size(), '\0');
      std::vector<MutableByteSpan> places;
      MutableByteSpan left = AsWritableBytes(memory).first(memory.size() - missing);
      for (size_t size = 1; !left.empty(); size = size % 70'000 * 3 + 1) {
        const size_t take = std::min(size, left.size());
        places.push_back(left.first(take));
        left = left.subspan(take);
      }
      ASSERT_GT(places.size(), 16u);
      uint64_t told = 0;
      Caller caller;
      caller.sink = [&] { return HttpBodySink::IntoPlaces(places, [&](uint64_t bytes) { told = bytes; }); };
      Start(Client(), Request(server), caller);
      const Outcome outcome = caller.Wait();
      EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
      EXPECT_EQ(outcome.result.body_bytes, body.size() - missing);
      EXPECT_EQ(told, body.size() - missing);
      EXPECT_EQ(outcome.result.more, missing > 0);
      EXPECT_EQ(memory.compare(0, body.size() - missing, body, 0, body.size() - missing), 0);
    }
  }
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
  for (const std::string& answer :
       {std::string("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"),
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
    ScriptedServer server(
        Answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmill\r\n4\r\nrace\r\n0\r\n\r\n"));
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
  ScriptedServer server(
      Answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + WithLength("ok")));
  EXPECT_EQ(Run(Client(), Request(server)).result.text, "ok");
}

TEST_F(HttpClientTest, HeadAndBodyMayArriveInAnyPieces) {
  const std::string answer = WithLength("body");
  // Each connection sends the answer in two pieces, cut at its number; the second only when the client has had time to
  // take the first.
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
  for (int i = 0; i < 5; ++i) callers.push_back(std::make_unique<Caller>());
  // All in one task: none can end before the last has begun.
  loops_.at(0).Post([&] {
    for (size_t i = 0; i < callers.size(); ++i) {
      HttpRequest request = Request(server);
      request.head.target = "/" + std::to_string(i);
      callers[i]->call = client.Start(loops_.at(0), std::move(request), *callers[i]);
    }
  });
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
    caller.sink = [&] { return HttpBodySink::Into(AsWritableBytes(buffer)); };
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

}  // namespace
}  // namespace millrace
