#include "net/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

/// A client that sees bytes, not messages.
class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    const timeval patience{10, 0};  // a test that hangs fails
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~RawClient() { Close(); }

  int fd() const { return fd_; }
  bool connected() const { return connected_; }
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
  /// Everything until the server ends the connection; `error` gets errno of a reset.
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
  /// Up to and with `end`.
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
    last_facts = facts;
    if (head_) {
      if (auto early = head_(head)) responder.Send(*std::move(early));
    }
    return std::make_unique<Exchange>(*this, std::move(head), std::move(responder));
  }

  HttpRequestFacts last_facts;  // read when the server rests

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
};

HttpReply TextReply(std::string text, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.body.emplace_back(SendText{std::move(text)});
  return reply;
}

/// "METHOD TARGET body"
void Echo(FunctionHandler::Request request, HttpResponder responder) {
  responder.Send(TextReply(request.head.method + " " + request.head.target + " " + request.body));
}

class HttpServerTest : public testing::Test {
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

std::string Body(const std::string& response) {
  return response.substr(response.find("\r\n\r\n") + 4);
}

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
  RawClient client(server_->port());  // many short fields
  std::string head = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) head += "A: b\r\nC: d\r\n";
  client.Send(head);
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, SaysContinueOnlyToThoseWhoWait) {
  Serve(Echo);
  RawClient client(server_->port());
  client.Send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(handler_->last_facts.expects_continue);
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
  // Who waits for 100 gets the answer instead.
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

/// A file with a pattern.
class PatternFile {
 public:
  PatternFile() : text_(3'000'000, '\0') {
    for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>((i * 2654435761u) >> 13);
    std::string path = testing::TempDir() + "http_server_testXXXXXX";
    file_ = std::make_shared<const UniqueFd>(mkstemp(path.data()));
    unlink(path.c_str());
    EXPECT_EQ(write(file_->get(), text_.data(), text_.size()), static_cast<ssize_t>(text_.size()));
  }
  const std::string& text() const { return text_; }
  ReplyStep Step(uint64_t offset, uint64_t length) const { return SendFile{file_, {offset, length}}; }

 private:
  std::string text_;
  std::shared_ptr<const UniqueFd> file_;
};

TEST_F(HttpServerTest, SendsTextMemoryAndFilesInOrder) {
  const PatternFile file;
  const auto memory = std::make_shared<const std::string>(2'000'000, 'm');
  ServeReply([&] {
    HttpReply reply;
    reply.body.emplace_back(SendText{"begin"});
    reply.body.push_back(file.Step(1000, 2'000'000));
    reply.body.emplace_back(SendBytes{AsBytes(*memory), memory});
    reply.body.push_back(file.Step(0, 1));
    reply.body.emplace_back(SendBytes{});
    for (int i = 0; i < 200; ++i) reply.body.emplace_back(SendText{"-"});
    return reply;
  });
  RawClient client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string expected =
      "begin" + file.text().substr(1000, 2'000'000) + *memory + file.text().substr(0, 1) + std::string(200, '-');
  const std::string response = client.ReadAll();
  EXPECT_NE(response.find(fmt::format("Content-Length: {}\r\n", expected.size())), std::string::npos);
  EXPECT_TRUE(Body(response) == expected);
}

TEST_F(HttpServerTest, ATruncatedFileCutsTheConnection) {
  const PatternFile file;
  ServeReply([&] {
    HttpReply reply;
    reply.body.push_back(file.Step(2'999'990, 20));  // ten bytes beyond its end
    return reply;
  });
  RawClient client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_LE(Body(client.ReadAll()).size(), 10u);
}

TEST_F(HttpServerTest, EndsByFinOrByResetAfterTheBytesBefore) {
  for (const bool reset : {false, true}) {
    ServeReply([reset] {
      HttpReply reply;
      reply.body.emplace_back(SendText{std::string(100'000, 'x')});
      reply.content_length = 200'000;
      reply.body.emplace_back(EndConnection{reset});
      reply.body.emplace_back(SendText{"never"});
      return reply;
    });
    RawClient client(server_->port());
    client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    int error = -1;
    const std::string response = client.ReadAll(&error);
    EXPECT_NE(response.find("Content-Length: 200000"), std::string::npos);
    EXPECT_EQ(Body(response), std::string(100'000, 'x'));
    EXPECT_EQ(error, reset ? ECONNRESET : 0);
    server_.reset();
  }
}

TEST_F(HttpServerTest, EndsBeforeTheHead) {
  for (const bool reset : {false, true}) {
    ServeReply([reset] {
      HttpReply reply;
      reply.send_head = false;
      reply.body.emplace_back(EndConnection{reset});
      return reply;
    });
    RawClient client(server_->port());
    client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    int error = -1;
    EXPECT_EQ(client.ReadAll(&error), "");
    EXPECT_EQ(error, reset ? ECONNRESET : 0);
    server_.reset();
  }
}

TEST_F(HttpServerTest, AShortBodyEndsTheConnection) {
  ServeReply([] {
    HttpReply reply = TextReply("short");
    reply.content_length = 10;
    return reply;
  });
  RawClient client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(Body(client.ReadAll()), "short");
}

// Lower bounds only: a busy machine may be late, never early.
TEST_F(HttpServerTest, WaitsPausesAndPaces) {
  ServeReply([] {
    HttpReply reply;
    reply.not_before = SteadyClock::now() + milliseconds(50);
    reply.body.emplace_back(SendText{"a"});
    reply.body.emplace_back(SendPause{milliseconds(60)});
    reply.body.emplace_back(SendRate{1'000'000});
    reply.body.emplace_back(SendText{std::string(100'000, 'b')});
    return reply;
  });
  RawClient client(server_->port());
  const auto start = SteadyClock::now();
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  client.ReadUntil("\r\n\r\na");
  EXPECT_GE(SteadyClock::now() - start, milliseconds(50));
  EXPECT_EQ(client.ReadBytes(1), "b");
  EXPECT_GE(SteadyClock::now() - start, milliseconds(110));
  EXPECT_EQ(client.ReadBytes(99'999).size(), 99'999u);
  EXPECT_GE(SteadyClock::now() - start, milliseconds(210));
  EXPECT_LT(SteadyClock::now() - start, milliseconds(5000));
}

TEST_F(HttpServerTest, AnswersFromOtherThreads) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  Serve([&](FunctionHandler::Request request, HttpResponder responder) {
    std::lock_guard lock(mutex);
    threads.emplace_back([target = request.head.target, responder = std::move(responder)]() mutable {
      responder.Send(TextReply("late " + target));
    });
  });
  for (int i = 0; i < 20; ++i) {
    RawClient client(server_->port());
    client.Send(fmt::format("GET /{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", i));
    EXPECT_EQ(Body(client.ReadAll()), fmt::format("late /{}", i));
  }
  server_.reset();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HttpServerTest, ADroppedResponderClosesTheConnection) {
  Serve([](FunctionHandler::Request, HttpResponder) {});
  RawClient client(server_->port());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpServerTest, ClosesEverythingInItsDestructor) {
  const PatternFile file;
  ServeReply([&] {
    HttpReply reply;
    for (int i = 0; i < 10; ++i) reply.body.push_back(file.Step(0, 3'000'000));
    reply.body.emplace_back(SendPause{std::chrono::hours(1)});
    return reply;
  });
  RawClient stuck(server_->port());  // never reads
  stuck.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  RawClient idle(server_->port());
  RawClient waiting(server_->port());
  waiting.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(Body(waiting.ReadUntil("\r\n\r\n")), "");
  server_.reset();
  waiting.ReadAll();
  EXPECT_EQ(idle.ReadAll(), "");
}

TEST_F(HttpServerTest, SurvivesPeersThatGoAwayWhileAFileIsSent) {
  const PatternFile file;
  ServeReply([&] {
    HttpReply reply;
    for (int i = 0; i < 20; ++i) reply.body.push_back(file.Step(0, 3'000'000));
    return reply;
  });
  for (int i = 0; i < 10; ++i) {
    RawClient client(server_->port());
    client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.ReadBytes(10);
  }
  RawClient client(server_->port());
  client.Send("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, ClosesIdleConnections) {
  HttpServerOptions options;
  options.idle_timeout = milliseconds(50);
  Serve(Echo, nullptr, std::move(options));
  RawClient client(server_->port());
  client.Send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /half");
  EXPECT_NE(client.ReadAll().find("GET /1 "), std::string::npos);
}

TEST_F(HttpServerTest, SaysWhyItCannotListen) {
  Serve(Echo);
  FunctionHandler handler(Echo);
  HttpServerOptions options;
  options.port = server_->port();
  const auto second = HttpServer::Start(loops_, std::move(options), handler);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find("in use"), absl::string_view::npos);
  HttpServerOptions elsewhere;
  elsewhere.host = "192.0.2.1";  // documentation only: no machine has it
  EXPECT_EQ(HttpServer::Start(loops_, std::move(elsewhere), handler).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(HttpServerTest, ServesTls) {
  const auto tls = MakeThrowawayTls("127.0.0.1");
  ASSERT_TRUE(tls.ok()) << tls.status();
  const PatternFile file;
  HttpServerOptions options;
  options.tls = tls->server;
  Serve(
      [&](FunctionHandler::Request request, HttpResponder responder) {
        HttpReply reply = TextReply(request.body);
        reply.body.push_back(file.Step(5, 1'000'000));
        responder.Send(std::move(reply));
      },
      nullptr, std::move(options));

  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  BIO* bio = BIO_new_mem_buf(tls->ca_pem.data(), static_cast<int>(tls->ca_pem.size()));
  X509* ca = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  {
    RawClient client(server_->port());
    SSL* ssl = SSL_new(context);
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), "127.0.0.1");
    SSL_set_fd(ssl, client.fd());
    ASSERT_EQ(SSL_connect(ssl), 1);
    const std::string body(300'000, 'b');
    const std::string request = fmt::format(
        "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
    for (size_t sent = 0; sent < request.size();) {
      const int n = SSL_write(ssl, request.data() + sent, static_cast<int>(request.size() - sent));
      ASSERT_GT(n, 0);
      sent += static_cast<size_t>(n);
    }
    std::string response;
    char piece[65536];
    for (int n; (n = SSL_read(ssl, piece, sizeof piece)) > 0;) response.append(piece, static_cast<size_t>(n));
    EXPECT_TRUE(Body(response) == body + file.text().substr(5, 1'000'000));
    SSL_free(ssl);
  }
  {
    RawClient client(server_->port());  // not a handshake
    client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(client.ReadAll().find("200 OK"), std::string::npos);
  }
  {
    RawClient client(server_->port());  // a name that the certificate does not have
    SSL* ssl = SSL_new(context);
    SSL_set1_host(ssl, "example.org");
    SSL_set_fd(ssl, client.fd());
    EXPECT_NE(SSL_connect(ssl), 1);
    SSL_free(ssl);
  }
  X509_free(ca);
  BIO_free(bio);
  SSL_CTX_free(context);
}

}  // namespace
}  // namespace millrace
