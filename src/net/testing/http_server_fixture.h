#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "net/http_server.h"

/// This fixture has a server whose answers are a function, and a client that sees its bytes.

namespace millrace {

/// This client sees bytes, not messages.
class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    const timeval timeout{10, 0};  // a test that hangs fails
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }
  ~RawClient() { Close(); }

  int fd() const { return fd_; }
  bool connected() const { return connected_; }
  /// Returns false if the server has closed the connection.
  bool IsOpen() const {
    char next;
    const ssize_t n = recv(fd_, &next, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && errno == EAGAIN);
  }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  /// Returns everything until the server ends the connection; `error` gets errno of a reset.
  std::string ReadAll(int* error = nullptr) {
    std::string all = std::exchange(buffer_, "");
    char piece[65536];
    for (;;) {
      const ssize_t n = recv(fd_, piece, sizeof piece, 0);
      if (n <= 0) {
        if (error != nullptr) *error = n < 0 ? errno : 0;
        return all;
      }
      all.append(piece, static_cast<size_t>(n));
    }
  }
  /// Reads up to `end`, and `end` itself.
  std::string ReadUntil(std::string_view end) {
    size_t at;
    while ((at = buffer_.find(end)) == std::string::npos) {
      if (!Fill()) return std::exchange(buffer_, "");
    }
    return Take(at + end.size());
  }
  std::string ReadBytes(size_t n) {
    while (buffer_.size() < n && Fill()) {
    }
    return Take(std::min(n, buffer_.size()));
  }

 private:
  bool Fill() {
    char piece[65536];
    const ssize_t n = recv(fd_, piece, sizeof piece, 0);
    if (n > 0) buffer_.append(piece, static_cast<size_t>(n));
    return n > 0;
  }
  std::string Take(size_t n) {
    std::string taken = buffer_.substr(0, n);
    buffer_.erase(0, n);
    return taken;
  }

  int fd_;
  bool connected_ = false;
  std::string buffer_;
};

/// Answers by a function of the request and its body.
class FunctionHandler final : public HttpHandler {
 public:
  struct Request {
    HttpRequestHead head;
    std::string body;
  };
  using OnComplete = std::function<void(Request, HttpResponder)>;
  using OnHead = std::function<std::optional<HttpReply>(const HttpRequestHead&)>;

  explicit FunctionHandler(OnComplete complete, OnHead head = nullptr)
      : complete_(std::move(complete)), head_(std::move(head)) {}

  std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                          HttpResponder responder) override {
    {
      std::lock_guard lock(facts_mutex_);
      last_facts_ = facts;
    }
    if (head_) {
      if (auto early = head_(head)) responder.Send(*std::move(early));
    }
    return std::make_unique<Exchange>(*this, std::move(head), std::move(responder));
  }

  /// Returns the facts of the request that began last. Any thread may ask.
  HttpRequestFacts LastFacts() const {
    std::lock_guard lock(facts_mutex_);
    return last_facts_;
  }

 private:
  struct Exchange final : public HttpExchange {
    Exchange(FunctionHandler& owner, HttpRequestHead head, HttpResponder to)
        : handler(owner), request{std::move(head), ""}, responder(std::move(to)) {}
    void OnBody(ByteSpan bytes) override { request.body.append(AsText(bytes)); }
    void OnBodyEnd() override { handler.complete_(std::move(request), std::move(responder)); }
    FunctionHandler& handler;
    Request request;
    HttpResponder responder;
  };

  OnComplete complete_;
  OnHead head_;
  mutable std::mutex facts_mutex_;
  HttpRequestFacts last_facts_;  // guarded by facts_mutex_
};

inline HttpReply TextReply(std::string text, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.body.emplace_back(SendText{std::move(text)});
  return reply;
}

/// Answers "METHOD TARGET body".
inline void Echo(FunctionHandler::Request request, HttpResponder responder) {
  responder.Send(TextReply(request.head.method + " " + request.head.target + " " + request.body));
}

class HttpServerTest : public ::testing::Test {
 protected:
  void Serve(FunctionHandler::OnComplete complete, FunctionHandler::OnHead head = nullptr,
             HttpServerOptions options = {}) {
    handler_.emplace(std::move(complete), std::move(head));
    auto server = HttpServer::Start(loops_, std::move(options), *handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void ServeReply(std::function<HttpReply()> make) {
    Serve([make](FunctionHandler::Request, HttpResponder responder) { responder.Send(make()); });
  }

  EventLoops loops_{2};
  std::optional<FunctionHandler> handler_;
  std::unique_ptr<HttpServer> server_;
};

inline std::string Body(const std::string& response) {
  return response.substr(response.find("\r\n\r\n") + 4);
}

}  // namespace millrace
