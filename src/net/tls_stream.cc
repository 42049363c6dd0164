#include "net/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cerrno>
#include <utility>

namespace millrace {

namespace asio = boost::asio;

namespace {

constexpr size_t kTurn = size_t{256} << 10;  // bytes read or written before others on the loop get their turn
// This holds two records of the largest size. After each record OpenSSL moves all that it has read beyond it to the
// front of its buffer, so a buffer for more records would move most bytes several times.
constexpr size_t kReadBuffer = size_t{33} << 10;

/// The processor fetches the lines that the next record will fill while OpenSSL decrypts it. Without that the copy to
/// memory which is in no cache takes as long as a third of the decryption.
void Prefetch(const char* into, size_t size) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < std::min<size_t>(size, SSL3_RT_MAX_PLAIN_LENGTH); at += kLine) {
    __builtin_prefetch(into + at, /*rw=*/1, /*locality=*/2);
  }
}

bool Waits(int reason) {
  return reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE;
}

TlsStream::Error ErrorOf(int reason) {
  switch (reason) {
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    case SSL_ERROR_SYSCALL:
      if (errno != 0) return {errno, boost::system::system_category()};
      return asio::ssl::error::stream_truncated;
    default:
      break;
  }
  const unsigned long error = ERR_get_error();
  if (error == 0 || ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    return asio::ssl::error::stream_truncated;
  }
  return {static_cast<int>(error), asio::error::get_ssl_category()};
}

}  // namespace

void TlsStream::Free::operator()(SSL* ssl) const {
  SSL_free(ssl);
}

TlsStream::TlsStream(Socket socket, SSL_CTX* context, const std::string& host)
    : socket_(std::move(socket)), ssl_(SSL_new(context)) {
  Error ignored;
  socket_.native_non_blocking(true, ignored);
  // Without one of what follows no stream: the handshake fails, and nothing is let through by mistake.
  if (ssl_ != nullptr && (host.empty() || SSL_set_fd(ssl_.get(), socket_.native_handle()) != 1)) ssl_.reset();
  if (ssl_ == nullptr) return;
  // OpenSSL reads two records with one system call.
  SSL_set_read_ahead(ssl_.get(), 1);
  SSL_set_default_read_buffer_len(ssl_.get(), kReadBuffer);
  SSL_set_mode(ssl_.get(),
               SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  const bool is_address = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), host.c_str()) == 1;
  if (is_address) return;
  SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
  if (SSL_set1_host(ssl_.get(), host.c_str()) != 1) ssl_.reset();
}

TlsStream::~TlsStream() = default;

void TlsStream::Later(Handler done, const Error& error, size_t bytes) {
  asio::post(socket_.get_executor(),
             [done = std::move(done), error, bytes]() mutable { std::move(done)(error, bytes); });
}

template <typename Again>
void TlsStream::Await(int result, Handler done, Again again) {
  const int reason = SSL_get_error(ssl_.get(), result);
  if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE)
    return Later(std::move(done), ErrorOf(reason), 0);
  socket_.async_wait(reason == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write,
                     [this, done = std::move(done), again](const Error& error) mutable {
                       // It may have been closed after it was found ready: its descriptor is somebody else's by now.
                       const Error outcome = socket_.is_open() ? error : Error(asio::error::operation_aborted);
                       if (outcome) return std::move(done)(outcome, 0);
                       again(std::move(done));
                     });
}

void TlsStream::async_handshake(Handler done) {
  if (ssl_ == nullptr) return Later(std::move(done), asio::error::no_memory, 0);
  Handshake(std::move(done));
}

void TlsStream::Handshake(Handler done) {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_connect(ssl_.get());
  if (result == 1) return Later(std::move(done), {}, 0);
  Await(result, std::move(done), [this](Handler handler) { Handshake(std::move(handler)); });
}

void TlsStream::async_read_some(asio::mutable_buffer into, Handler done) {
  Read(into, std::move(done));
}

void TlsStream::Read(asio::mutable_buffer into, Handler done) {
  if (read_error_) return Later(std::move(done), read_error_, 0);
  size_t total = 0;
  int result = 0;
  const size_t most = std::min(into.size(), kTurn);
  ERR_clear_error();  // a call that succeeds leaves it empty
  errno = 0;
  while (total < most) {  // a call returns one record at most
    char* const place = static_cast<char*>(into.data()) + total;
    Prefetch(place, most - total);
    result = SSL_read(ssl_.get(), place, static_cast<int>(most - total));
    if (result <= 0) break;
    total += static_cast<size_t>(result);
  }
  if (total > 0) {
    const int reason = result > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), result);
    if (reason != SSL_ERROR_NONE && !Waits(reason)) read_error_ = ErrorOf(reason);  // for the next call
    return Later(std::move(done), {}, total);
  }
  Await(result, std::move(done), [this, into](Handler handler) { Read(into, std::move(handler)); });
}

void TlsStream::async_write_some(const Parts& from, Handler done) {
  Write(from, std::move(done));
}

// An error that is met after bytes were taken is met again by the next call.
void TlsStream::Write(const Parts& from, Handler done) {
  size_t total = 0;
  int result = 1;
  ERR_clear_error();
  errno = 0;
  for (const asio::const_buffer& part : from) {
    size_t sent = 0;
    while (result > 0 && sent < part.size() && total < kTurn) {  // a call takes one record at most
      const size_t size = std::min(part.size() - sent, kTurn - total);
      result = SSL_write(ssl_.get(), static_cast<const char*>(part.data()) + sent, static_cast<int>(size));
      if (result <= 0) break;
      sent += static_cast<size_t>(result);
      total += static_cast<size_t>(result);
    }
  }
  if (total > 0) return Later(std::move(done), {}, total);
  Await(result, std::move(done), [this, from](Handler handler) { Write(from, std::move(handler)); });
}

}  // namespace millrace
