#include "net/testing/scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace millrace {

namespace {

void Check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::abort();
}

SSL_CTX* MakeContext(const TlsIdentity& identity) {
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  BIO* const certificate_text =
      BIO_new_mem_buf(identity.certificate_pem.data(), static_cast<int>(identity.certificate_pem.size()));
  BIO* const key_text = BIO_new_mem_buf(identity.key_pem.data(), static_cast<int>(identity.key_pem.size()));
  X509* const certificate = PEM_read_bio_X509(certificate_text, nullptr, nullptr, nullptr);
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(key_text, nullptr, nullptr, nullptr);
  Check(certificate && key && SSL_CTX_use_certificate(context, certificate) == 1 &&
            SSL_CTX_use_PrivateKey(context, key) == 1,
        "identity");
  X509_free(certificate);
  EVP_PKEY_free(key);
  BIO_free(certificate_text);
  BIO_free(key_text);
  return context;
}

}  // namespace

std::string ScriptedConnection::ReadSome(size_t bytes) {
  std::string out(bytes, '\0');
  const ssize_t got =
      ssl_ ? SSL_read(static_cast<SSL*>(ssl_), out.data(), static_cast<int>(bytes)) : ::recv(fd_, out.data(), bytes, 0);
  out.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return out;
}

std::string ScriptedConnection::ReadRequest() {
  const auto more = [this] {
    const std::string piece = ReadSome(64 << 10);
    received_ += piece;
    return !piece.empty();
  };
  while (received_.find("\r\n\r\n") == std::string::npos) {
    if (!more()) return "";
  }
  size_t length = received_.find("\r\n\r\n") + 4;
  if (const size_t at = received_.find("Content-Length: "); at < length)
    length += std::strtoull(&received_[at + 16], nullptr, 10);
  while (received_.size() < length) {
    if (!more()) return "";
  }
  std::string request = received_.substr(0, length);
  received_.erase(0, length);
  return request;
}

void ScriptedConnection::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ssl_ ? SSL_write(static_cast<SSL*>(ssl_), bytes.data(), static_cast<int>(bytes.size()))
                              : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the client has gone
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void ScriptedConnection::WaitForClose() {
  while (!ReadSome(4096).empty()) {
  }
}

bool ScriptedConnection::ClosesWithin(std::chrono::milliseconds limit) {
  pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
  char byte;
  return ::poll(&readable, 1, static_cast<int>(limit.count())) == 1 && ::recv(fd_, &byte, 1, MSG_PEEK) <= 0;
}

ScriptedServer::ScriptedServer(Script script, const TlsIdentity* tls) : script_(std::move(script)) {
  if (tls) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets without MSG_NOSIGNAL
    tls_context_ = MakeContext(*tls);
  }
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  Check(::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  Check(::listen(listener_, 64) == 0, "listen");
  Check(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

ScriptedServer::~ScriptedServer() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  ::shutdown(listener_, SHUT_RDWR);  // wakes accept
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
  SSL_CTX_free(static_cast<SSL_CTX*>(tls_context_));
}

void ScriptedServer::Accept() {
  for (;;) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    std::lock_guard lock(mutex_);
    if (closing_) {
      ::close(fd);
      return;
    }
    open_.push_back(fd);
    threads_.emplace_back([this, fd, number = accepted_.fetch_add(1)] { Serve(fd, number); });
  }
}

void ScriptedServer::Serve(int fd, int number) {
  ScriptedConnection connection;
  connection.fd_ = fd;
  connection.number_ = number;
  bool ready = true;
  if (tls_context_) {
    SSL* const ssl = SSL_new(static_cast<SSL_CTX*>(tls_context_));
    SSL_set_fd(ssl, fd);
    connection.ssl_ = ssl;
    ready = SSL_accept(ssl) == 1;
  }
  if (ready) script_(connection);
  if (connection.ssl_) {
    if (ready && connection.end_ == ScriptedConnection::End::kClean) SSL_shutdown(static_cast<SSL*>(connection.ssl_));
    SSL_free(static_cast<SSL*>(connection.ssl_));
  }
  if (connection.end_ == ScriptedConnection::End::kReset) {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  }
  std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

}  // namespace millrace
