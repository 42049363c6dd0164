#include "net/proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/testing/http_client_fixture.h"
#include "net/testing/http_server_fixture.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<HttpProxies> ReadProxies(const std::map<std::string, std::string>& variables) {
  return HttpProxies::Read([&](const std::string& name) {
    const auto at = variables.find(name);
    return at == variables.end() ? std::string() : at->second;
  });
}

/// Returns "host:port" of the proxy for a server; "" without one.
std::string ProxyFor(const HttpProxies& proxies, std::string host, bool tls = true) {
  const HttpProxy* const proxy = proxies.For({.host = std::move(host), .port = 443, .tls = tls});
  return proxy != nullptr ? HostAndPort(proxy->server.host, proxy->server.port) : "";
}

TEST(HttpProxies, EachSchemeHasItsVariables) {
  using Variables = std::map<std::string, std::string>;
  const auto of = [](const Variables& variables) {
    const HttpProxies proxies = *ReadProxies(variables);
    return ProxyFor(proxies, "h", true) + " " + ProxyFor(proxies, "h", false);
  };
  EXPECT_EQ(of({}), " ");
  EXPECT_EQ(of({{"HTTPS_PROXY", "http://p:3128"}}), "p:3128 ");
  EXPECT_EQ(of({{"HTTP_PROXY", "http://p:3128/"}}), " p:3128");
  EXPECT_EQ(of({{"https_proxy", "http://a:1"}, {"HTTPS_PROXY", "http://b:2"}}), "a:1 ");
  EXPECT_EQ(of({{"ALL_PROXY", "http://p:1"}}), "p:1 p:1");
  EXPECT_EQ(of({{"all_proxy", "http://p:1"}, {"http_proxy", "http://q:2"}}), "p:1 q:2");
  EXPECT_EQ(of({{"HTTP_PROXY", "http://p:1"}, {"REQUEST_METHOD", "GET"}}), " ");
  EXPECT_EQ(of({{"https_proxy", "p"}}), "p:1080 ") << "curl's defaults";
  EXPECT_EQ(of({{"https_proxy", "http://[::1]:3128"}}), "[::1]:3128 ");
  EXPECT_EQ(of({{"https_proxy", "HTTP://user:p%40ss@p:3128"}}), "p:3128 ");
}

TEST(HttpProxies, UserAndPassword) {
  const HttpProxies proxies = *ReadProxies({{"https_proxy", "http://us%65r:p@ss@p:3128"}});
  EXPECT_EQ(proxies.For({.host = "h", .tls = true})->authorization, "Basic dXNlcjpwQHNz");  // user:p@ss
  const HttpProxies without = *ReadProxies({{"https_proxy", "http://us%3Ar@p:3128"}});
  EXPECT_EQ(without.For({.host = "h", .tls = true})->authorization, "Basic dXM6cjo=");  // us:r and an empty password
}

TEST(HttpProxies, MistakesNameTheVariableAndKeepThePassword) {
  for (const char* url :
       {"https://user:CANARY@p:1", "socks5://user:CANARY@p:1", "http://user:CANARY@p:x", "http://user:CANARY@p:0",
        "http://user:CANARY@p:65536", "http://user:CANARY@", "http://user:CANARY@[::1", "http://user:CANARY@a b:1"}) {
    const absl::Status status = ReadProxies({{"HTTPS_PROXY", url}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("HTTPS_PROXY"), Not(HasSubstr("CANARY")))) << url;
  }
}

TEST(HttpProxies, Exceptions) {
  const auto excepted = [](const std::string& exceptions, std::string host) {
    return ProxyFor(*ReadProxies({{"https_proxy", "p:1"}, {"no_proxy", exceptions}}), std::move(host)).empty();
  };
  for (const auto& [exceptions, host] : std::vector<std::pair<std::string, std::string>>{
           {"*", "any"},
           {"example.com", "example.com"},
           {"example.com", "a.example.com"},
           {".example.com", "a.b.EXAMPLE.com"},
           {".example.com.", "example.com."},
           {"other, example.com", "example.com"},
           {"other example.com", "example.com"},
           {"10.1.2.3", "10.1.2.3"},
           {"10.0.0.0/8", "10.200.1.1"},
           {"192.168.4.0/22", "192.168.7.255"},
           {"[fd00::1]", "fd00::1"},
           {"fd00::/16", "fd00:1::2"},
       }) {
    EXPECT_TRUE(excepted(exceptions, host)) << exceptions << " " << host;
  }
  for (const auto& [exceptions, host] : std::vector<std::pair<std::string, std::string>>{
           {"", "any"},
           {"example.com", "badexample.com"},
           {"example.com", "example.com.org"},
           {"10.0.0.0/8", "11.0.0.1"},
           {"192.168.4.0/22", "192.168.8.0"},
           {"10.0.0.0/33", "10.0.0.0"},
           {"10.0.0.0/8", "10.example.com"},
           {"fd00::/16", "fe00::1"},
       }) {
    EXPECT_FALSE(excepted(exceptions, host)) << exceptions << " " << host;
  }
  EXPECT_EQ(ProxyFor(*ReadProxies({{"https_proxy", "p:1"}, {"NO_PROXY", "h"}}), "h"), "");
}

TEST(HttpProxies, TheServicesOfTheMachineAreAskedThemselves) {
  const HttpProxies proxies = *ReadProxies({{"ALL_PROXY", "http://p:1"}});
  for (const char* host : {"169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fe80::1"})
    EXPECT_EQ(ProxyFor(proxies, host, false), "") << host;
  EXPECT_EQ(proxies.For({.host = "127.0.0.1", .direct = true}), nullptr);
  EXPECT_EQ(ProxyFor(proxies, "127.0.0.1"), "p:1") << "as curl";
}

class ProxyTest : public HttpClientTest {
 protected:
  HttpClientOptions Through(const ScriptedServer& proxy, const std::string& user = "") {
    const std::string url = "http://" + user + "127.0.0.1:" + std::to_string(proxy.port());
    return {.connect_timeout = std::chrono::minutes(2),
            .first_byte_timeout = std::chrono::minutes(2),
            .proxies = *ReadProxies({{"ALL_PROXY", url}})};
  }
};

TEST_F(ProxyTest, OfPlainHttpItIsToldTheWholeUrl) {
  std::string head;
  std::optional<ScriptedServer> proxy(std::in_place, [&head](ScriptedConnection& connection) {
    head = connection.ReadRequest();
    connection.Send(WithLength("ok"));
  });
  HttpRequest request = Request(*proxy, "GET", "store.test");
  request.endpoint.port = 9000;
  EXPECT_EQ(Run(Client(Through(*proxy, "me:pw@")), request).result.text, "ok");
  client_.reset();
  proxy.reset();  // `head` is whole then
  EXPECT_THAT(head, HasSubstr("GET http://store.test:9000/path?query HTTP/1.1\r\n"));
  EXPECT_THAT(head, HasSubstr("Proxy-Authorization: Basic bWU6cHc=\r\n"));
}

TEST_F(ProxyTest, WhatItRefusesIsNotTriedAgain) {
  std::string head;
  std::optional<ScriptedServer> proxy(std::in_place, [&head](ScriptedConnection& connection) {
    head = connection.ReadRequest();
    connection.Send("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
  });
  HttpRequest request = Request(*proxy, "GET", "store.test");
  for (const bool tls : {false, true}) {
    request.endpoint.tls = tls;
    const Outcome outcome = Run(Client(Through(*proxy)), request);
    EXPECT_EQ(outcome.result.error, HttpErrorKind::kProxy);
    EXPECT_THAT(outcome.result.detail, HasSubstr("HTTP 407: it wants a user and a password"));
  }
  client_.reset();
  proxy.reset();
  EXPECT_THAT(head, HasSubstr("CONNECT store.test:"));
}

TEST_F(ProxyTest, AServerThatItDoesNotReachIsTriedAgain) {
  ScriptedServer proxy([](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
  });
  HttpRequest request = Request(proxy, "GET", "store.test");
  request.endpoint.tls = true;
  EXPECT_EQ(Run(Client(Through(proxy)), request).result.error, HttpErrorKind::kConnect);
  ScriptedServer closes([](ScriptedConnection& connection) { connection.ReadRequest(); });
  EXPECT_EQ(Run(Client(Through(closes)), request).result.error, HttpErrorKind::kConnect);
}

/// Passes bytes on in both directions until the client closes.
void Relay(ScriptedConnection& client, uint16_t port) {
  RawClient server(port);
  const timeval forever{};
  setsockopt(server.fd(), SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
  std::thread back([&] {
    std::array<char, 4096> bytes;
    for (ssize_t got; (got = recv(server.fd(), bytes.data(), bytes.size(), 0)) > 0;)
      client.Send({bytes.data(), static_cast<size_t>(got)});
  });
  for (std::string some; !(some = client.ReadSome(4096)).empty();) server.Send(some);
  shutdown(server.fd(), SHUT_RDWR);
  back.join();
}

TEST_F(ProxyTest, TlsGoesThroughATunnel) {
  const ThrowawayTls tls = *MakeThrowawayTls("127.0.0.1");
  const std::string ca_file = ::testing::TempDir() + "/ca-proxy-" + std::to_string(::getpid()) + ".pem";
  std::ofstream(ca_file) << tls.ca_pem;
  ScriptedServer server(Answer(WithLength("secret")), &tls.server);
  std::string head;
  std::optional<ScriptedServer> proxy(std::in_place, [&](ScriptedConnection& connection) {
    head = connection.ReadRequest();
    connection.Send("HTTP/1.1 200 Connection established\r\n\r\n");
    Relay(connection, server.port());
  });
  HttpClientOptions options = Through(*proxy, "me:pw@");
  options.ca_file = ca_file;
  HttpRequest request = Request(server);
  request.endpoint.tls = true;
  HttpClient& client = Client(std::move(options));
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = Run(client, request);
    EXPECT_EQ(outcome.result.error, HttpErrorKind::kNone) << outcome.result.detail;
    EXPECT_EQ(outcome.result.text, "secret");
  }
  EXPECT_EQ(proxy->connections(), 1) << "the tunnel is kept";
  client_.reset();
  proxy.reset();
  EXPECT_THAT(head, HasSubstr("CONNECT 127.0.0.1:" + std::to_string(server.port()) + " HTTP/1.1\r\n"));
  EXPECT_THAT(head, HasSubstr("Proxy-Authorization: Basic bWU6cHc=\r\n"));
  std::remove(ca_file.c_str());
}

}  // namespace
}  // namespace millrace
