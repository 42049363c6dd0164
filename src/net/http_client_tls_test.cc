#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <thread>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/testing/http_client_fixture.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

class HttpClientTlsTest : public HttpClientTest {
 protected:
  HttpClientTlsTest() : tls_(*MakeThrowawayTls("127.0.0.1")) { std::ofstream(ca_file_) << tls_.ca_pem; }
  ~HttpClientTlsTest() override { std::remove(ca_file_.c_str()); }

  HttpRequest TlsRequest(const ScriptedServer& server, std::string host = "127.0.0.1") {
    HttpRequest request = Request(server, "GET", std::move(host));
    request.endpoint.tls = true;
    return request;
  }

  const ThrowawayTls tls_;
  const std::string ca_file_ = ::testing::TempDir() + "/ca-" + std::to_string(::getpid()) + ".pem";
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
  EXPECT_THAT(outcome.result.detail, ::testing::HasSubstr("not trusted"));
}

TEST_F(HttpClientTlsTest, AnotherHostsCertificateIsNotTrusted) {
  ScriptedServer server(Answer(WithLength("secret")), &tls_.server);
  // "127.1" is 127.0.0.1 to the resolver, but not the certificate's name.
  EXPECT_EQ(Run(Client({.ca_file = ca_file_}), TlsRequest(server, "127.1")).result.error, HttpErrorKind::kTls);
}

TEST_F(HttpClientTlsTest, ANameInPlaceOfTheHost) {
  ScriptedServer server(Answer(WithLength("ok")), &tls_.server);
  const HttpClientOptions by_name{.ca_file = ca_file_, .only_ca_file = true, .tls_name = "localhost"};
  EXPECT_EQ(Run(Client(by_name), TlsRequest(server, "127.1")).result.error, HttpErrorKind::kNone);
  const HttpClientOptions other{.ca_file = ca_file_, .only_ca_file = true, .tls_name = "elsewhere.example"};
  EXPECT_EQ(Run(Client(other), TlsRequest(server)).result.error, HttpErrorKind::kTls);
}

/// Answers every request.
class Greeter final : public HttpHandler {
 public:
  std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead, const HttpRequestFacts&, HttpResponder responder) override {
    class Ignored final : public HttpExchange {
      void OnBody(ByteSpan) override {}
      void OnBodyEnd() override {}
    };
    HttpReply reply;
    reply.body.emplace_back(SendText{"hello"});
    responder.Send(std::move(reply));
    return std::make_unique<Ignored>();
  }
};

TEST_F(HttpClientTlsTest, AServerThatAsksWhoCalls) {
  const ThrowawayTls stranger = *MakeThrowawayTls("127.0.0.1");
  EventLoops loops(1);
  Greeter greeter;
  const auto server =
      *HttpServer::Start(loops, {.host = "127.0.0.1", .tls = tls_.server, .client_ca_pem = tls_.ca_pem}, greeter);
  HttpRequest request{.endpoint = {.host = "127.0.0.1", .port = server->port(), .tls = true}, .head = {"GET", "/", {}}};
  request.head.headers.Add("Host", "127.0.0.1");
  const auto run = [&](std::optional<TlsIdentity> identity) {
    return Run(Client({.ca_file = ca_file_, .only_ca_file = true, .identity = std::move(identity)}), request).result;
  };
  EXPECT_EQ(run(tls_.server).text, "hello");
  for (const std::optional<TlsIdentity>& wrong : {std::optional<TlsIdentity>(), std::optional(stranger.server)}) {
    const HttpResult result = run(wrong);
    EXPECT_EQ(result.error, HttpErrorKind::kTls) << result.detail;
    EXPECT_THAT(result.detail, ::testing::HasSubstr("the server ended TLS"));
  }
  request.endpoint.tls = false;
  EXPECT_THAT(run(std::nullopt).text, ::testing::HasSubstr("this server speaks TLS"));
  request.endpoint.tls = true;
  const HttpResult no_key = run(TlsIdentity{tls_.server.certificate_pem, stranger.server.key_pem});
  EXPECT_EQ(no_key.error, HttpErrorKind::kTls);
  EXPECT_THAT(no_key.detail, ::testing::HasSubstr("certificate or key"));
  EXPECT_EQ(HttpServer::Start(loops, {.tls = tls_.server, .client_ca_pem = "nothing"}, greeter).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(HttpClientTlsTest, AMissingCaFileIsSaid) {
  ScriptedServer server(Answer(WithLength("ok")), &tls_.server);
  const Outcome outcome = Run(Client({.ca_file = "/no/such/file.pem"}), TlsRequest(server));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kTls);
  EXPECT_THAT(outcome.result.detail, ::testing::HasSubstr("/no/such/file.pem"));
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
  EXPECT_EQ(Run(Client({.connect_timeout = milliseconds(50)}), TlsRequest(hangs)).result.error,
            HttpErrorKind::kConnect);
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
    EXPECT_EQ(outcome.result.error, authentic ? HttpErrorKind::kNone : HttpErrorKind::kClosedEarly)
        << outcome.result.detail;
    EXPECT_EQ(outcome.result.text, "millrace");
  }
}

TEST_F(HttpClientTlsTest, ALargeBodyIsSentToASlowReader) {
  const std::string body = Pattern(20'000'000);  // more than sockets hold
  std::string received;
  ScriptedServer server(
      [&](ScriptedConnection& connection) {
        received = connection.ReadSome(1000);
        std::this_thread::sleep_for(milliseconds(100));  // until the client can write no more
        while (received.size() < body.size() || !received.ends_with(body.substr(body.size() - 100))) {
          const std::string piece = connection.ReadSome(100'000);
          if (piece.empty()) return;
          received += piece;
        }
        connection.Send(WithLength("thanks"));
      },
      &tls_.server);
  HttpRequest request = TlsRequest(server);
  request.head.method = "PUT";
  request.body = AsBytes(body);
  const Outcome outcome = Run(Client({.ca_file = ca_file_}), std::move(request));
  EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
  EXPECT_EQ(outcome.result.text, "thanks");
  EXPECT_TRUE(received.ends_with(body));
}

TEST_F(HttpClientTlsTest, AnUploadThatIsRefusedOrCancelledMidwayEnds) {
  const std::string body = Pattern(20'000'000);
  for (const bool refused : {true, false}) {
    std::promise<void> begun;
    ScriptedServer server(
        [&](ScriptedConnection& connection) {
          connection.ReadSome(1000);
          if (refused) connection.Send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
          begun.set_value();
          connection.WaitForClose();
        },
        &tls_.server);
    HttpClient& client = Client({.ca_file = ca_file_});
    HttpRequest request = TlsRequest(server);
    request.head.method = "PUT";
    request.body = AsBytes(body);
    Caller caller;
    Start(client, std::move(request), caller);
    begun.get_future().wait();
    if (!refused) loops_.at(0).Post([&] { caller.call->Cancel(); });
    const Outcome outcome = caller.Wait();
    EXPECT_EQ(outcome.result.error, refused ? HttpErrorKind::kNone : HttpErrorKind::kCancelled)
        << outcome.result.detail;
    if (refused) {
      ASSERT_TRUE(outcome.head.has_value());
      EXPECT_EQ(outcome.head->status, 403);
    }
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
  buffer.reset();  // a sanitizer would report a late write
}

}  // namespace
}  // namespace millrace
