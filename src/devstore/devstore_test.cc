// These tests run the server in one process, by its library interface. The tests in tests/devstore are for what S3
// clients see of it.

#include "devstore/devstore.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>

namespace millrace {
namespace {

/// Sends one request over a connection of its own; returns the whole response.
std::string Ask(uint16_t port, std::string_view request) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string response;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char piece[65536];
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;) response.append(piece, static_cast<size_t>(n));
  }
  close(fd);
  return response;
}

std::string RequestText(std::string_view method, std::string_view target, std::string_view body = "") {
  return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", method, target,
                     body.size(), body);
}

DevstoreOptions Anonymous() {
  DevstoreOptions options;
  options.anonymous = true;
  options.buckets = {"bucket"};
  return options;
}

TEST(Devstore, CountsAnswersByMethodAndStatus) {
  DevstoreOptions options = Anonymous();
  options.faults = {"GET bucket/cut cut=head"};
  const auto store = Devstore::Start(options);
  ASSERT_TRUE(store.ok()) << store.status();
  const uint16_t port = (*store)->port();
  EXPECT_EQ((*store)->url(), fmt::format("http://127.0.0.1:{}", port));
  EXPECT_NE(Ask(port, RequestText("PUT", "/bucket/k", "hello")).find("200 OK"), std::string::npos);
  EXPECT_TRUE(Ask(port, RequestText("GET", "/bucket/k")).ends_with("\r\n\r\nhello"));
  EXPECT_NE(Ask(port, RequestText("GET", "/bucket/none")).find("<Code>NoSuchKey</Code>"), std::string::npos);
  EXPECT_EQ(Ask(port, RequestText("GET", "/bucket/cut")), "");
  const auto counters = (*store)->counters();
  EXPECT_EQ(counters,
            (decltype((*store)->counters()){{{"GET", 0}, 1}, {{"GET", 200}, 1}, {{"GET", 404}, 1}, {{"PUT", 200}, 1}}));
}

TEST(Devstore, LogsNoSecrets) {
  std::mutex mutex;
  std::string log;
  DevstoreOptions options = Anonymous();
  options.access_log = [&](std::string_view line) {
    std::lock_guard lock(mutex);
    log.append(line).append("\n");
  };
  {
    const auto store = Devstore::Start(options);
    ASSERT_TRUE(store.ok());
    Ask((*store)->port(), RequestText("GET", "/bucket/k?X-Amz-Signature=topsecret&X-Amz-Credential=alsosecret"));
  }
  EXPECT_NE(log.find("GET /bucket/k GetObject 404"), std::string::npos) << log;
  EXPECT_EQ(log.find("secret"), std::string::npos);
}

TEST(Devstore, RemovesItsCaFile) {
  DevstoreOptions options = Anonymous();
  options.tls = true;
  std::string ca_file;
  {
    const auto store = Devstore::Start(options);
    ASSERT_TRUE(store.ok()) << store.status();
    ca_file = (*store)->ca_file();
    EXPECT_TRUE(std::filesystem::exists(ca_file));
    EXPECT_TRUE((*store)->url().starts_with("https://"));
  }
  EXPECT_FALSE(std::filesystem::exists(ca_file));
}

TEST(Devstore, StopsWhileRequestsWait) {
  DevstoreOptions options = Anonymous();
  options.faults = {"GET * delay-ms=3600000"};
  std::promise<void> waits;  // the answer is made and waits for its time
  options.access_log = [&](std::string_view) { waits.set_value(); };
  auto store = *Devstore::Start(options);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(store->port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const std::string request = RequestText("GET", "/bucket/k");
  ASSERT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  ASSERT_EQ(waits.get_future().wait_for(std::chrono::seconds(300)), std::future_status::ready);
  store.reset();
  char byte;
  EXPECT_LE(recv(fd, &byte, 1, 0), 0);
  close(fd);
}

TEST(Devstore, RefusesOptionsThatMakeNoSense) {
  const auto code = [](auto change) {
    DevstoreOptions options = Anonymous();
    change(options);
    return Devstore::Start(options).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](DevstoreOptions& o) { o.root = "/nonexistent/folder"; }), absl::StatusCode::kNotFound);
  EXPECT_EQ(code([](DevstoreOptions& o) { o.faults = {"GET"}; }), kInvalid);
  EXPECT_EQ(code([](DevstoreOptions& o) { o.latency.first_byte_ms = -1; }), kInvalid);
  EXPECT_EQ(code([](DevstoreOptions& o) { o.latency.tail_fraction = 1.5; }), kInvalid);
  EXPECT_EQ(code([](DevstoreOptions& o) { o.threads = -1; }), kInvalid);
  EXPECT_EQ(code([](DevstoreOptions& o) { o.buckets = {"Not_A_Bucket"}; }), kInvalid);
  EXPECT_EQ(code([](DevstoreOptions& o) {
              o.anonymous = false;
              o.secret_key = "";
            }),
            kInvalid);
  const auto first = Devstore::Start(Anonymous());
  EXPECT_EQ(code([&](DevstoreOptions& o) { o.port = (*first)->port(); }), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace millrace
