// These tests are about how a server answers, and how connections end.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <thread>

#include "net/http_server.h"
#include "net/testing/http_server_fixture.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

/// This is a file with a pattern.
class PatternFile {
 public:
  PatternFile() : text_(3'000'000, '\0') {
    for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>((i * 2654435761u) >> 13);
    std::string path = ::testing::TempDir() + "http_server_testXXXXXX";
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
