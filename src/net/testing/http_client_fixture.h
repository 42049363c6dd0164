#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_client.h"
#include "net/testing/scripted_server.h"

namespace millrace {

struct Outcome {
  HttpResult result;
  std::optional<HttpResponseHead> head;
  std::vector<HttpPhase> phases;
};

/// Makes one call: it says where its body goes, and how it ended.
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
  HttpBodySink OnHead(HttpResponseHead head) override {
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

/// The tests have a client on one loop.
class HttpClientTest : public ::testing::Test {
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
    caller.sink = [&] { return HttpBodySink::Into(AsWritableBytes(buffer), skip); };
    Start(client, std::move(request), caller);
    return caller.Wait();
  }

  EventLoops loops_{1};
  std::optional<HttpClient> client_;
};

/// Sends `answer` to every request.
inline ScriptedServer::Script Answer(std::string answer) {
  return [answer = std::move(answer)](ScriptedConnection& connection) {
    while (!connection.ReadRequest().empty()) connection.Send(answer);
  };
}

/// Returns a response with that body.
inline std::string WithLength(std::string_view body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

inline std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 7 % 26);
  return text;
}

}  // namespace millrace
